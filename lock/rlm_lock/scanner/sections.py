"""The sections of a version, as the daemon gets them."""

from __future__ import annotations

from rlm_ipc.messages import plain
from rlm_lock.protocol import ReadSection, Section, SectionRead
from rlm_lock.scanner.extracts import Extracts
from rlm_lock.scanner.indexing import Indexing
from rlm_lock.scanner.project import Project
from rlm_lock.scanner.view import View
from rlm_lock.sections.keyfiles.collecting import key_files_of
from rlm_lock.sections.manifests.collecting import Manifests, read_manifests
from rlm_lock.sections.rules.collecting import rules_of
from rlm_lock.sections.rules.model import RuleSet
from rlm_lock.sections.structure import project_of
from rlm_lock.sections.view import folder_below

_MOST_KEPT = 16
"""Sections that are cached, by question."""
_LONGEST_MAP = 4_000_000
"""About how many characters the whole map has, in a project of any size."""


class Sections:
    """Creates the sections of the newest version, and caches them and the manifests while the project is unchanged."""

    def __init__(self, project: Project, extracts: Extracts, indexing: Indexing) -> None:
        """Args: the project, what is known about its files, and their index."""
        self._project, self._extracts, self._indexing = project, extracts, indexing
        self._made: dict[ReadSection, SectionRead] = {}
        self._manifests: dict[bytes, Manifests] = {}
        self._revision = -1

    def read(self, question: ReadSection, *, is_settled: bool) -> SectionRead:
        """Return a section; the history is the daemon's.

        Args: is_settled, whether nothing is left to do, so that the same question has the same answer until a look.

        Raises:
            ValueError: there is no such set of rules, or no such section here.
            OSError: the project's folder is gone.
        """
        if not is_settled or self._revision != self._project.revision or len(self._made) >= _MOST_KEPT:
            self._made.clear()
            self._manifests.clear()
            self._revision = self._project.revision if is_settled else -1
        if (cached := self._made.get(question)) is not None:
            return cached
        section = self._make(question)
        if is_settled:
            self._made[question] = section
        return section

    def _make(self, question: ReadSection) -> SectionRead:
        number = 0 if self._project.version is None else self._project.version.number
        below = folder_below(question.path)
        if question.section is Section.MAP:
            project_map = self._indexing.map
            return SectionRead(number, text="" if project_map is None else "".join(project_map.whole(_LONGEST_MAP)))
        view = View(self._project, self._extracts, self._indexing.index)
        try:
            match question.section:
                case Section.PROJECT:
                    content = plain(project_of(view, self._manifests_of(view, below), below))
                case Section.KEYFILES:
                    content = plain(key_files_of(view, self._manifests_of(view, below), below))
                case Section.RULES:
                    content = plain(rules_of(view, RuleSet(question.rules), below, question.severe))
                case _:
                    raise ValueError(f"the scanner has no section {question.section.value}")
        finally:
            view.close()
        return SectionRead(number, content)

    def _manifests_of(self, view: View, below: bytes) -> Manifests:
        if below not in self._manifests:
            self._manifests[below] = read_manifests(view, below)
        return self._manifests[below]
