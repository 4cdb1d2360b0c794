"""The tools, one short function each: its description for agents, and the call to the service that does the work."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rlm_contexts.searches import SearchRequest
from rlm_ipc.messages import JsonObject, alike
from rlm_mcp.service.contexts.sources import Load, resolve
from rlm_mcp.service.frames.plans import plan_of
from rlm_mcp.service.lock.lock import Asked as AskedLock
from rlm_mcp.service.lock.tables import Priority
from rlm_mcp.service.service import Caller, Service
from rlm_mcp.service.sessions.names import is_frame_id
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_mcp.service.work.work import Asked
from rlm_mcp.tools import arguments as take
from rlm_mcp.tools.registry import Registry
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.states import Status
from rlm_memory.queries import QueryRow

TOOLS = Registry()
"""Every tool of the server."""


@TOOLS.add(
    "Load text (log, file, directory) under a name that all agents of the session share. "
    "Give one of path, content and variable.",
    take.LoadContext,
    tier="core",
    in_turns=True,
)
async def load_context(service: Service, session: Session, given: take.LoadContext, caller: Caller) -> ToolAnswer:
    """Store a text under a name."""
    source = resolve(given.content, given.path, given.variable)
    load = Load(given.name, source, given.content_type, given.metadata)
    return await service.contexts.load(session, load, caller.handshake, caller.progress)


@TOOLS.add(
    "Read a variable's lines, starting at the 0-based offset. Returns limit lines; without limit, as many as fit.",
    take.Peek,
    tier="core",
    in_turns=True,
    read_only=True,
)
async def peek(service: Service, session: Session, given: take.Peek, caller: Caller) -> ToolAnswer:
    """Return a page of lines."""
    return await service.reading.peek(session, given.name, given.offset, given.limit, given.max_chars)


@TOOLS.add(
    "Search a variable's lines by regex (case-insensitive; up to 200 matches). Use it to find the lines to peek at.",
    take.Scan,
    tier="core",
    in_turns=True,
    read_only=True,
)
async def scan(service: Service, session: Session, given: take.Scan, caller: Caller) -> ToolAnswer:
    """Return the matching lines with their numbers."""
    flags = given.flags
    search = SearchRequest(
        given.pattern, given.context_lines, given.max_matches, start_line=given.start_line or 0,
        case_sensitive="case" in flags, fixed="fixed" in flags, word="word" in flags, invert="invert" in flags,
    )  # fmt: skip
    return await service.reading.scan(session, given.name, search, count="count" in flags, per_file="per_file" in flags)


@TOOLS.add("List loaded texts and variables with sizes.", take.NoArguments, tier="core", read_only=True, in_turns=True)
async def list_vars(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """List the variables."""
    return await service.reading.list_vars(session)


@TOOLS.add("Describe a variable: size, type, metadata.", take.Named, tier="core", read_only=True, in_turns=True)
async def var_info(service: Service, session: Session, given: take.Named, caller: Caller) -> ToolAnswer:
    """Describe one variable."""
    return await service.reading.var_info(session, given.name)


@TOOLS.add("Delete a variable.", take.Named, tier="core", in_turns=True, frees=True)
async def unload(service: Service, session: Session, given: take.Named, caller: Caller) -> ToolAnswer:
    """Delete a variable."""
    return await service.contexts.unload(session, given.name)


@TOOLS.add(
    "Create a handle that lets other sessions use a text. "
    "share_with: session ids, or * for all; default: sessions of this workspace.",
    take.RegisterHandle,
    tier="core",
    in_turns=True,
)
async def register_handle(service: Service, session: Session, given: take.RegisterHandle, caller: Caller) -> ToolAnswer:
    """Create a handle and grant its use."""
    return service.handles.register(session, given.name, given.content_type, given.share_with)


@TOOLS.add("Make the text behind a handle a variable of this session.", take.ResolveHandle, tier="core", in_turns=True)
async def resolve_handle(service: Service, session: Session, given: take.ResolveHandle, caller: Caller) -> ToolAnswer:
    """Name a handle's text in the session."""
    return service.handles.resolve(session, given.handle)


@TOOLS.add(
    "Run Python in the sandbox; variables persist. A loaded text is a dict: log['content'], log['lines']. "
    "llm_query(prompt) asks you. cells: a batch. If status is running, call wait.",
    take.EvalCode,
    tier="core",
)
async def eval_code(service: Service, session: Session, given: take.EvalCode, caller: Caller) -> ToolAnswer:
    """Run a cell, or a batch up to the first cell that fails; a cancelled call interrupts it.

    A client that dies or disconnects cancels nothing: `wait` returns the result.
    """
    frame = service.frames.of_call(session, caller)
    code = given.cells if given.code is None else given.code
    run = service.runs.start(session, code, frame, terminal=caller.handshake.is_terminal)
    try:
        return await service.follow(session, run, caller)
    except asyncio.CancelledError:
        if not caller.has_left():
            service.runs.abandon(run)
        raise


@TOOLS.add(
    "Answer pending_llm_queries. A waiting cell resumes; later cells read the answers from llm_answers.",
    take.AnswerQueries,
    tier="core",
)
async def answer_queries(service: Service, session: Session, given: take.AnswerQueries, caller: Caller) -> ToolAnswer:
    """Store each answer separately; a cell that waits for them resumes."""
    return await service.answer_queries(session, service.queries.read(session, given.answers), caller)


@TOOLS.add(
    "Wait up to 45 s for an eval_code run. Returns its result; for a finished run, also its images.",
    take.Wait,
    tier="core",
    read_only=True,
)
async def wait(service: Service, session: Session, given: take.Wait, caller: Caller) -> ToolAnswer:
    """Wait for a run; a cancelled wait leaves it running."""
    run = service.runs.find(session, given.run)
    already_finished = run.state == "finished"
    answer = await service.follow(session, run, caller, patient=True)
    if not already_finished:
        return answer
    return replace(answer, images=await service.runs.pictures.images(session.key, run.id))


@TOOLS.add("Interrupt running code; variables are kept.", take.NoArguments, tier="core")
async def interrupt(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Interrupt the running code."""
    return await service.control.interrupt(session)


@TOOLS.add(
    "Show the session's policy, kernel, memory, runs and pending queries.",
    take.NoArguments,
    tier="core",
    read_only=True,
)
async def status(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Describe the session."""
    return await service.control.status(session)


@TOOLS.add("Record a goal and its subgoals (children) without starting them.", take.PlanGoal, tier="core")
async def plan(service: Service, session: Session, given: take.PlanGoal, caller: Caller) -> ToolAnswer:
    """Plan frames."""
    wanted = plan_of({"goal": given.goal, "children": given.children})
    return service.frames.plan(session, caller, wanted, given.parent)


@TOOLS.add(
    "Start a goal (text, or id of a planned one) in a fork of the session; fork=false: in this session. "
    "Then pass the returned id as session.",
    take.Push,
    tier="core",
)
async def push(service: Service, session: Session, given: take.Push, caller: Caller) -> ToolAnswer:
    """Start a frame."""
    return await service.frames.push(
        session, caller, given.goal, parent=given.parent, fork=given.fork, policy=given.policy
    )


@TOOLS.add(
    "End a frame (a started goal) with a summary. hand_over: variables to copy to the parent session.",
    take.Pop,
    tier="core",
)
async def pop(service: Service, session: Session, given: take.Pop, caller: Caller) -> ToolAnswer:
    """End a frame."""
    outcome = Outcome(
        Status(given.status), given.summary, given.artifacts, given.decisions, given.hand_over, given.children
    )
    return await service.frames.pop(session, caller, given.id, outcome)


@TOOLS.add(
    "Show the goal tree and a frame's context. The id of an open frame also makes it the current one.",
    take.ShowFrame,
    tier="core",
)
async def frame(service: Service, session: Session, given: take.ShowFrame, caller: Caller) -> ToolAnswer:
    """Show a frame, or change its state."""
    frames = service.frames
    if given.note is not None:
        return service.turns.note(session, caller, given.id, given.note)
    if given.do == "turns":
        return await service.turns.show(session, caller, given.id)
    if given.do is None or given.id is None:
        return frames.show(session, caller, given.id)
    if given.do == "invalidate":
        return await frames.invalidate(session, caller, given.id)
    if given.do == "reopen":
        return await frames.reopen(session, caller, given.id)
    return frames.forget(session, caller, given.id)


@TOOLS.add(
    "Shared task queue. next: list ready tasks; claim: hold one until you disconnect; renew: merge data into "
    "progress; done: data={status,summary,files}; add: data={goal,parent,blocks}.",
    take.WorkArguments,
    tier="all",
)
async def work(service: Service, session: Session, given: take.WorkArguments, caller: Caller) -> ToolAnswer:
    """Carry out a verb of the queue."""
    return await service.work.do(session, caller, alike(Asked, given))


@TOOLS.add(
    "Read a task's hand-off (its result), or write it: data={status: PASS|FAIL|BLOCKED, summary, files, decisions, "
    "details}.",
    take.HandOffArguments,
    tier="all",
)
async def handoff(service: Service, session: Session, given: take.HandOffArguments, caller: Caller) -> ToolAnswer:
    """Write or read a hand-off."""
    if given.data:
        return await service.hand_offs.write(session, caller, given.id, given.data)
    return await service.hand_offs.read(session, caller, given.id, details=given.details)


@TOOLS.add(
    "Get a snapshot of the project: structure, key files, rules, history, changes since your last call. "
    "map=1500, about='words', focus=[paths]: rank the files that matter.",
    take.LockArguments,
    tier="all",
    read_only=True,
)
async def lock(service: Service, session: Session, given: take.LockArguments, caller: Caller) -> ToolAnswer:
    """Show the project's lock."""
    named = given.frame if is_frame_id(given.frame) else None
    frame, _ = service.frames.named(session, caller, named)
    priority = None if given.priority is None else Priority(given.priority)
    asked = alike(AskedLock, given, priority=priority)
    return await service.lock.answer(session, caller.handshake, frame.key, asked, caller.progress)


@TOOLS.add(
    "Fork the session: a new one with a copy of every variable, to try something without changing this one.",
    take.ForkSession,
    tier="all",
)
async def fork_session(service: Service, session: Session, given: take.ForkSession, caller: Caller) -> ToolAnswer:
    """Make a new session from this one."""
    if given.goal is not None:
        return await service.frames.push(session, caller, given.goal, policy=given.policy, name=given.name)
    return await service.fork(session, given.name, given.policy)


@TOOLS.add(
    "Undo the last eval_code cells: variables return to their earlier values; files are not restored.",
    take.RollbackArguments,
    tier="all",
)
async def rollback(service: Service, session: Session, given: take.RollbackArguments, caller: Caller) -> ToolAnswer:
    """Undo cells."""
    return await service.control.rollback(session, given.cells, caller.session)


@TOOLS.add("Return the images that code has displayed, such as plots.", take.Wait, tier="all", read_only=True)
async def view_images(service: Service, session: Session, given: take.Wait, caller: Caller) -> ToolAnswer:
    """Return pictures as images."""
    return await service.runs.pictures.view(session.key, given.run)


@TOOLS.add(
    "Show how much of the session's query budget is used: calls; for a provider also tokens, cost and seconds.",
    take.NoArguments,
    tier="all",
    read_only=True,
)
async def budget(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Return the budget."""
    return ToolAnswer({"session": session.id, **service.budgets.shown(session)})


@TOOLS.add("Restart the kernel: Python variables are lost; loaded texts are kept.", take.NoArguments, tier="all")
async def restart_session(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Restart the kernel with the loaded texts."""
    service.control.check_own(session, caller.session)
    return await service.control.restart(session)


@TOOLS.add("End the session and delete everything in it.", take.NoArguments, tier="all", frees=True)
async def end_session(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Delete the session."""
    service.control.check_own(session, caller.session)
    agents = "an agent ended it with end_session"
    how = "`rlm-kernel end` at a terminal ended it" if caller.handshake.is_terminal else agents
    return await service.control.end(session, how)


@TOOLS.add(
    "Run SQL (DuckDB) over loaded texts. CSV, JSON and Parquet keep their own columns; "
    "any other text has the columns line and text.",
    take.QueryArguments,
    tier="all",
    in_turns=True,
    read_only=True,
)
async def query(service: Service, session: Session, given: take.QueryArguments, caller: Caller) -> ToolAnswer:
    """Return the rows of a query."""
    return await service.tables.query(session, given.name, given.sql)


@TOOLS.add("Reload a text from its files and report what changed.", take.Named, tier="all", in_turns=True)
async def refresh(service: Service, session: Session, given: take.Named, caller: Caller) -> ToolAnswer:
    """Reload a context that came from files."""
    return await service.contexts.refresh(session, given.name, caller.handshake, caller.progress)


@TOOLS.add(
    "Return lines, such as 12-15 (0-based), with a hash of the whole text, for citation.",
    take.Cite,
    tier="all",
    read_only=True,
    in_turns=True,
)
async def cite(service: Service, session: Session, given: take.Cite, caller: Caller) -> ToolAnswer:
    """Return lines and the hash of their text."""
    return await service.citing.cite(session, given.name, given.lines)


@TOOLS.add(
    "Check that a text contains a quote, and that it is in the cited lines.",
    take.CheckCitation,
    tier="all",
    read_only=True,
    in_turns=True,
)
async def check_citation(service: Service, session: Session, given: take.CheckCitation, caller: Caller) -> ToolAnswer:
    """Look for a quotation."""
    return await service.citing.check(session, given.name, given.quote, given.lines, given.hash)


@TOOLS.add("Queue a question for a language model; answer_queries answers it.", take.LlmQuery, tier="compat")
async def llm_query(service: Service, session: Session, given: take.LlmQuery, caller: Caller) -> ToolAnswer:
    """Queue one query."""
    (row,) = service.queries.ask(session, [given.prompt], given.model)
    return ToolAnswer(_deferred(row), ("prompt",))


@TOOLS.add("Queue several questions for a language model.", take.LlmQueryBatched, tier="compat")
async def llm_query_batched(
    service: Service, session: Session, given: take.LlmQueryBatched, caller: Caller
) -> ToolAnswer:
    """Queue several queries."""
    rows = service.queries.ask(session, given.prompts, given.model)
    return ToolAnswer({"status": "deferred", "queries": [_deferred(row) for row in rows]}, ("queries",))


@TOOLS.add("Show the current frame and the goal tree (like frame).", take.NoArguments, tier="compat", read_only=True)
async def flame_status(service: Service, session: Session, given: take.NoArguments, caller: Caller) -> ToolAnswer:
    """Show the current frame."""
    return service.frames.show(session, caller, None)


@TOOLS.add("Make a frame the current one (like frame).", take.Navigate, tier="compat")
async def flame_navigate(service: Service, session: Session, given: take.Navigate, caller: Caller) -> ToolAnswer:
    """Make a frame current."""
    return service.frames.show(session, caller, given.id)


TOOLS.add(
    "Get a snapshot of the project (like lock).", take.LockArguments, tier="compat", read_only=True, name="jcode.lock"
)(lock)  # the name that the protocol of the lock has for it


def _deferred(row: QueryRow) -> JsonObject:
    message = f"[DEFERRED:{row.id}] LLM query queued"
    return {"status": "deferred", "id": row.id, "prompt": row.prompt, "model": row.model, "message": message}
