"""The sections of a version, as the daemon gets them."""

from __future__ import annotations

import os

from rlm_ipc.messages import plain
from rlm_lock.protocol import ReadSection, Section, SectionRead
from rlm_lock.scanner.extracts import Extracts
from rlm_lock.scanner.indexing import Indexing
from rlm_lock.scanner.project import Project
from rlm_lock.scanner.view import View
from rlm_lock.sections.keyfiles import key_files_of
from rlm_lock.sections.rules.collecting import rules_of
from rlm_lock.sections.rules.model import RuleSet
from rlm_lock.sections.structure import project_of

__all__ = ["read_section"]

_LONGEST_MAP = 4_000_000
"""About how many characters the whole map has, in a project of whatever size."""


def read_section(project: Project, extracts: Extracts, indexing: Indexing, question: ReadSection) -> SectionRead:
    """Make a section of the newest version; the history is the daemon's.

    Raises:
        ValueError: there is no such set of rules, or no such section here.
        OSError: the project's folder has gone.
    """
    number = 0 if project.version is None else project.version.number
    below = os.fsencode(question.path.strip("/"))
    if question.section is Section.MAP:
        found = indexing.map
        return SectionRead(number, text="" if found is None else "".join(found.whole(_LONGEST_MAP)))
    view = View(project, extracts, indexing.index)
    try:
        match question.section:
            case Section.PROJECT:
                content = plain(project_of(view, below))
            case Section.KEYFILES:
                content = plain(key_files_of(view, below))
            case Section.RULES:
                content = plain(rules_of(view, RuleSet(question.rules), below, question.severe))
            case _:
                raise ValueError(f"the scanner has no section {question.section.value}")
    finally:
        view.close()
    return SectionRead(number, content)
