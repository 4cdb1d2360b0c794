"""The requests that the service answers once, and their answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlm_ipc.attachment_requests import (
    AddAttachment,
    AttachmentList,
    EnterAttachment,
    ListAttachments,
    RevokeAttachment,
)
from rlm_ipc.chain_requests import NoteChain, NoteRun, OpenChain, SurveyWork
from rlm_ipc.daemon_protocol import role_of
from rlm_ipc.daemon_requests import NoteHook, PrimeShown, Request, ShowPrime, Tidy
from rlm_ipc.lock_requests import ShowLock
from rlm_ipc.session_requests import (
    ApplyPolicy,
    JournalPage,
    KeepStop,
    KeepTurn,
    ListJournal,
    ListQueries,
    ListSessions,
    QueryList,
    RestoreSession,
    RunsBelow,
    SaveSession,
    SessionList,
    ShowOverview,
    ShowRecord,
    ShowRunsBelow,
    ShowTree,
    StopKept,
)
from rlm_ipc.work_requests import ExportWork, ImportWork, ShowMeasures, WorkExported
from rlm_mcp.daemon.caller import Caller
from rlm_mcp.service.errors import OF_LAYERS_BELOW, fault_from

if TYPE_CHECKING:
    from rlm_mcp.service.service import Service


async def answer(caller: Caller, service: Service, request: Request[Any]) -> None:
    """Answer a request; raises RlmMcpError with what to do."""
    try:
        await _answer(caller, service, request)
    except OF_LAYERS_BELOW as error:
        raise fault_from(error) from error


async def _answer(caller: Caller, service: Service, request: Request[Any]) -> None:
    if isinstance(named := getattr(request, "session", None), str):
        # A frame's id stands for its session.
        request = replace(cast("Any", request), session=service.frames.session_named(named) or named)
    match request:
        case ListSessions():
            caller.accept(request, SessionList(service.list_sessions(), service.list_resting()))
        case Tidy():
            caller.accept(request, await service.tidy())
        case ShowOverview():
            caller.accept(request, await service.watch.overview())
        case ListQueries():
            caller.accept(request, QueryList(service.queries.list_pending(request.session)))
        case KeepTurn():
            caller.accept(request, await service.note_turn(request))
        case SaveSession():
            path = Path(request.file) if request.file else None
            caller.accept(request, await service.save_session(request.session, path, embed=request.embed))
        case RestoreSession():
            caller.accept(request, await service.restore_session(request, caller.client))
        case ApplyPolicy():
            caller.accept(request, await service.apply_policy(request.session, request.policy, looser=request.looser))
        case KeepStop() | ListJournal() | ShowRecord() | ShowRunsBelow() | ShowTree():
            await _answer_with_records(caller, service, request)
        case OpenChain() | NoteChain() | NoteRun() | SurveyWork():
            await _answer_the_loop(caller, service, request)
        case _:
            await _answer_of_others(caller, service, request)


async def _answer_with_records(caller: Caller, service: Service, request: Request[Any]) -> None:
    match request:
        case ListJournal():
            caller.accept(request, JournalPage(service.list_journal(request.session, request.last)))
        case ShowRecord():
            caller.accept(request, await service.record(request.session, request.last))
        case KeepStop():
            caller.accept(request, StopKept(service.model_runs.note_stop(request.session, request.reason)))
        case ShowRunsBelow():
            caller.accept(request, RunsBelow(service.model_runs.below(request.session)))
        case ShowTree():
            caller.accept(request, await service.trees.record(request.frame, cells=request.cells))


async def _answer_the_loop(caller: Caller, service: Service, request: Request[Any]) -> None:
    match request:
        case OpenChain():
            caller.accept(request, await service.chains.open(request, caller.client))
        case NoteChain():
            caller.accept(request, service.chains.note(request))
        case NoteRun():
            caller.accept(request, service.chains.note_run(request))
        case SurveyWork():
            caller.accept(request, service.chains.survey(request))


async def _answer_of_others(caller: Caller, service: Service, request: Request[Any]) -> None:
    match request:
        case NoteHook():
            caller.accept(request, service.hooks.note(request))
        case ShowPrime():
            caller.accept(request, PrimeShown(service.hooks.prime(request.folder)))
        case ImportWork():
            named, file = service.work.tree_for(caller.client, request.session), Path(request.file)
            imported = await service.work.import_file(named, file, request.tracker, request.skip_missing)
            caller.accept(request, imported)
        case ExportWork():
            named = service.work.tree_for(caller.client, request.session)
            caller.accept(request, WorkExported(service.work.export_file(named, request.tracker)))
        case ShowMeasures():
            caller.accept(request, service.work.measured(service.work.tree_for(caller.client, request.session)))
        case ShowLock():
            from rlm_mcp.service.lock.by_hand import show_lock

            caller.accept(request, await show_lock(service.lock, request))
        case ListAttachments():
            caller.accept(request, AttachmentList(service.attachments.rows()))
        case AddAttachment():
            caller.accept(request, service.attachments.add(request.session, request.mode))
        case RevokeAttachment():
            caller.accept(request, await service.attachments.revoke(request.attachment))
        case EnterAttachment():
            caller.accept(request, await service.attachments.enter(request.attachment, request.key))
        case _:
            raise NotImplementedError(role_of(request))
