"""Writes the folder `.memory` of a project, from its scanner and the rows."""

from __future__ import annotations

import asyncio

from rlm_ipc.messages import read
from rlm_lock.protocol import ReadSection, Refreshed, Section
from rlm_lock.sections.history import History, PastSession, VersionLine
from rlm_lock.sections.keyfiles.model import KeyFiles
from rlm_lock.sections.memory_folder import MemoryContents, MemoryRefused, add_session, write_memory
from rlm_lock.sections.rules.model import Rules
from rlm_lock.sections.structure import Project as ProjectSection
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock.projects import Project


async def write_lock(project: Project, found: Refreshed, history: History) -> tuple[str, ...]:
    """Write a version to the folder, and return the files that changed.

    Raises:
        ToolFault: the folder is not ours, cannot be written, or the project has changed meanwhile.
    """
    kinds = Section.PROJECT, Section.KEYFILES, Section.RULES
    sections = [await project.ask(ReadSection(kind)) for kind in kinds]
    if {section.version for section in sections} != {found.version}:
        raise ToolFault("project_changed", "the project changed while its lock was written", "call again")
    contents = MemoryContents(
        version=VersionLine(found.version, found.tree, found.created, found.files),
        project=read(ProjectSection, sections[0].content),
        key_files=read(KeyFiles, sections[1].content),
        rules=read(Rules, sections[2].content),
        history=history,
    )
    try:
        return await asyncio.to_thread(write_memory, project.root, contents)
    except MemoryRefused as refused:
        raise ToolFault("cannot_write", str(refused), refused.advice) from refused
    except OSError as error:
        raise ToolFault(
            "cannot_write", f"the folder .memory cannot be written ({error.strerror})", "check the folder's permissions"
        ) from error


def note_session(root: str, session: PastSession) -> str | None:
    """Add a session to the folder if the project has one; return why that was not possible."""
    try:
        add_session(root, session)
    except (MemoryRefused, OSError) as error:
        return str(error)
    return None
