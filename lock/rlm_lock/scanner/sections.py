"""The sections of a version, as the daemon gets them."""

from __future__ import annotations

import os

from rlm_ipc.messages import plain
from rlm_lock.protocol import ReadSection, Section, SectionRead
from rlm_lock.scanner.project import Project
from rlm_lock.scanner.view import View
from rlm_lock.sections.keyfiles import key_files_of
from rlm_lock.sections.rules.collecting import rules_of
from rlm_lock.sections.rules.model import RuleSet
from rlm_lock.sections.structure import project_of

__all__ = ["read_section"]


def read_section(project: Project, question: ReadSection) -> SectionRead:
    """Make a section of the newest version; the history is the daemon's, and the map has no text yet.

    Raises:
        ValueError: there is no such set of rules, or no such section here.
        OSError: the project's folder has gone.
    """
    number = 0 if project.version is None else project.version.number
    below = os.fsencode(question.path.strip("/"))
    view = View(project)
    try:
        match question.section:
            case Section.PROJECT:
                content = plain(project_of(view, below))
            case Section.KEYFILES:
                content = plain(key_files_of(view, below))
            case Section.RULES:
                content = plain(rules_of(view, RuleSet(question.rules), below))
            case Section.MAP:
                content = {}  # there is no index yet, and so no text
            case Section.HISTORY:
                raise ValueError(f"the scanner has no section {question.section.value}")
    finally:
        view.close()
    return SectionRead(number, content)
