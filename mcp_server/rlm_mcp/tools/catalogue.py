"""The tools, one short function each: what an agent reads about it, and which part of the service does it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.contexts.reading import Search
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
    "Load text (log, file, directory) once as a shared variable, from content, path or variable.",
    take.LoadContext,
    tier="core",
    in_turns=True,
)
async def load_context(service: Service, session: Session, given: take.LoadContext, caller: Caller) -> ToolAnswer:
    """Store a text under a name."""
    source = resolve(given.content, given.path, given.variable)
    asked = Load(given.name, source, given.content_type, given.metadata)
    return await service.contexts.load(session, asked, caller.handshake, caller.progress)


@TOOLS.add(
    "Read a variable's lines from a 0-based offset: limit lines, else all that fit.",
    take.Peek,
    tier="core",
    in_turns=True,
    read_only=True,
)
async def peek(service: Service, session: Session, given: take.Peek, caller: Caller) -> ToolAnswer:
    """Return a page of lines."""
    return await service.reading.peek(session, given.name, given.offset, given.limit, given.max_chars)


@TOOLS.add(
    "Search a variable's lines with a case-insensitive regex; at most 200 matches. Scan before peek.",
    take.Scan,
    tier="core",
    in_turns=True,
    read_only=True,
)
async def scan(service: Service, session: Session, given: take.Scan, caller: Caller) -> ToolAnswer:
    """Return the matching lines with their numbers."""
    search = Search(
        given.pattern, given.context_lines, given.max_matches, given.start_line or 0, frozenset(given.flags)
    )
    return await service.reading.scan(session, given.name, search)


@TOOLS.add("List variables with sizes.", take.ListVars, tier="core", read_only=True, in_turns=True)
async def list_vars(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
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
    "Share a text by a handle; share_with: session ids or *, else workspace.",
    take.RegisterHandle,
    tier="core",
    in_turns=True,
)
async def register_handle(service: Service, session: Session, given: take.RegisterHandle, caller: Caller) -> ToolAnswer:
    """Make and grant a handle."""
    return service.handles.register(session, given.name, given.content_type, given.share_with)


@TOOLS.add("Turn a handle into a variable.", take.ResolveHandle, tier="core", in_turns=True)
async def resolve_handle(service: Service, session: Session, given: take.ResolveHandle, caller: Caller) -> ToolAnswer:
    """Give a handle's text a name in the session."""
    return service.handles.resolve(session, given.handle)


@TOOLS.add(
    "Run Python in the sandbox: 60 s, variables persist; a loaded text is a dict "
    "(log['content'], log['lines']); llm_query(prompt) asks you. cells: a batch.",
    take.EvalCode,
    tier="core",
)
async def eval_code(service: Service, session: Session, given: take.EvalCode, caller: Caller) -> ToolAnswer:
    """Run a cell, or a batch up to the first that fails; a call that is cancelled interrupts it.

    A client that dies or hangs up cancels nothing: `wait` has the result.
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
    "Answer pending_llm_queries: waiting code goes on, other code finds them in llm_answers.",
    take.AnswerQueries,
    tier="core",
)
async def answer_queries(service: Service, session: Session, given: take.AnswerQueries, caller: Caller) -> ToolAnswer:
    """Take answers, each on its own; a cell that waits for them goes on."""
    return await service.answer_queries(session, service.queries.read(session, given.answers), caller)


@TOOLS.add("Wait up to 45 s for eval_code; a finished run shows its images.", take.Wait, tier="core", read_only=True)
async def wait(service: Service, session: Session, given: take.Wait, caller: Caller) -> ToolAnswer:
    """Wait for a run; a cancelled wait leaves it running."""
    run = service.runs.find(session, given.run)
    told_before = run.state == "finished"
    answer = await service.follow(session, run, caller, patient=True)
    return replace(answer, images=await service.runs.pictures.images(session.key, run.id)) if told_before else answer


@TOOLS.add("Interrupt running code; variables stay.", take.ListVars, tier="core")
async def interrupt(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Interrupt the running code."""
    return await service.control.interrupt(session)


@TOOLS.add(
    "Show the session: policy, kernel, memory, runs, queries.",
    take.ListVars,
    tier="core",
    read_only=True,
)
async def status(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Describe the session."""
    return await service.control.status(session)


@TOOLS.add("Plan a goal, with children.", take.PlanGoal, tier="core")
async def plan(service: Service, session: Session, given: take.PlanGoal, caller: Caller) -> ToolAnswer:
    """Plan frames."""
    wanted = plan_of({"goal": given.goal, "children": given.children})
    return service.frames.plan(session, caller, wanted, given.parent)


@TOOLS.add(
    "Start a goal or planned id in a fork (fork=false: here); pass session=its id.",
    take.Push,
    tier="core",
)
async def push(service: Service, session: Session, given: take.Push, caller: Caller) -> ToolAnswer:
    """Start a frame."""
    return await service.frames.push(
        session, caller, given.goal, parent=given.parent, fork=given.fork, policy=given.policy
    )


@TOOLS.add(
    "End a frame; hand_over: variables to pass up.",
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
    "Show tree and context; an id makes it current.",
    take.ShowFrame,
    tier="core",
)
async def frame(service: Service, session: Session, given: take.ShowFrame, caller: Caller) -> ToolAnswer:
    """Show a frame, or change what has become of it."""
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
    "Share a queue of tasks. next: ready ids; claim: yours while you live; renew: merges data into progress; "
    "done: data={status, summary, files}; add: data={goal, parent, blocks}.",
    take.WorkArguments,
    tier="all",
)
async def work(service: Service, session: Session, given: take.WorkArguments, caller: Caller) -> ToolAnswer:
    """Do something with the queue."""
    asked = Asked(given.do, given.id, given.data, given.fields, given.wait, given.holder)
    return await service.work.do(session, caller, asked)


@TOOLS.add(
    "Read a task's result, or write it: data={status: PASS|FAIL|BLOCKED, summary, files, decisions, details}.",
    take.HandOffArguments,
    tier="all",
)
async def handoff(service: Service, session: Session, given: take.HandOffArguments, caller: Caller) -> ToolAnswer:
    """Write or read a hand-off."""
    if given.data:
        return await service.hand_offs.write(session, caller, given.id, given.data)
    return await service.hand_offs.read(session, caller, given.id, details=given.details)


@TOOLS.add(
    "Know the project: structure, key files, rules, history, what changed since your last call. map=1500, "
    "about='words', focus=[paths]: which files matter.",
    take.LockArguments,
    tier="all",
    read_only=True,
)
async def lock(service: Service, session: Session, given: take.LockArguments, caller: Caller) -> ToolAnswer:
    """Show the project's lock."""
    named = given.frame if is_frame_id(given.frame) else None
    frame, _ = service.frames.named(session, caller, named)
    priority = None if given.priority is None else Priority(given.priority)
    asked = AskedLock(
        given.lock_id, priority, given.fields, given.role, given.agent, given.frame,
        map=given.map, focus=given.focus, about=given.about, path=given.path, rules=given.rules,
    )  # fmt: skip
    return await service.lock.answer(session, caller.handshake, frame.key, asked, caller.progress)


@TOOLS.add(
    "Fork the session: a new one with every variable, to try something without touching this one.",
    take.ForkSession,
    tier="all",
)
async def fork_session(service: Service, session: Session, given: take.ForkSession, caller: Caller) -> ToolAnswer:
    """Make a new session from this one."""
    if given.goal is not None:
        return await service.frames.push(session, caller, given.goal, policy=given.policy, name=given.name)
    return await service.fork(session, given.name, given.policy)


@TOOLS.add(
    "Undo the last eval_code cells: variables go back to their state before them; files do not.",
    take.RollbackArguments,
    tier="all",
)
async def rollback(service: Service, session: Session, given: take.RollbackArguments, caller: Caller) -> ToolAnswer:
    """Undo cells."""
    return await service.control.rollback(session, given.cells)


@TOOLS.add("View the pictures that code has displayed, such as plots.", take.Wait, tier="all", read_only=True)
async def view_images(service: Service, session: Session, given: take.Wait, caller: Caller) -> ToolAnswer:
    """Return pictures as images."""
    return await service.runs.pictures.view(session.key, given.run)


@TOOLS.add(
    "Show the session's query budget, used and allowed: calls; a provider's tokens, cost, seconds.",
    take.ListVars,
    tier="all",
    read_only=True,
)
async def budget(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Return the budget."""
    return ToolAnswer({"session": session.id, **service.budgets.shown(session)})


@TOOLS.add("Restart the kernel: Python variables are lost, loaded texts stay.", take.ListVars, tier="all")
async def restart_session(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Start again with the loaded texts."""
    return await service.control.restart(session)


@TOOLS.add("End the session and delete everything in it.", take.ListVars, tier="all", frees=True)
async def end_session(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Delete the session."""
    agents = "an agent ended it with end_session"
    how = "`rlm-kernel end` at a terminal ended it" if caller.handshake.is_terminal else agents
    return await service.control.end(session, how)


@TOOLS.add(
    "Run SQL (DuckDB) over contexts: CSV, JSON and Parquet by column, other text as the columns line and text.",
    take.QueryArguments,
    tier="all",
    in_turns=True,
    read_only=True,
)
async def query(service: Service, session: Session, given: take.QueryArguments, caller: Caller) -> ToolAnswer:
    """Return the rows of a query."""
    return await service.tables.query(session, given.name, given.sql)


@TOOLS.add("Reload a context from its files and report what changed.", take.Named, tier="all", in_turns=True)
async def refresh(service: Service, session: Session, given: take.Named, caller: Caller) -> ToolAnswer:
    """Load a context again that came from files."""
    return await service.contexts.refresh(session, given.name, caller.handshake, caller.progress)


@TOOLS.add(
    "Cite lines (12-15, from 0) with the hash of the text.", take.Cite, tier="all", read_only=True, in_turns=True
)
async def cite(service: Service, session: Session, given: take.Cite, caller: Caller) -> ToolAnswer:
    """Return some lines and the hash of their text."""
    return await service.citing.cite(session, given.name, given.lines)


@TOOLS.add(
    "Check that a text really contains a quote, in the lines cited.",
    take.CheckCitation,
    tier="all",
    read_only=True,
    in_turns=True,
)
async def check_citation(service: Service, session: Session, given: take.CheckCitation, caller: Caller) -> ToolAnswer:
    """Look for a quotation."""
    return await service.citing.check(session, given.name, given.quote, given.lines, given.hash)


@TOOLS.add("Queue a question to a language model, to be answered with answer_queries.", take.LlmQuery, tier="compat")
async def llm_query(service: Service, session: Session, given: take.LlmQuery, caller: Caller) -> ToolAnswer:
    """Queue one query."""
    (row,) = service.queries.ask(session, [given.prompt], given.model)
    return ToolAnswer(_deferred(row), ("prompt",))


@TOOLS.add("Queue several questions to a language model.", take.LlmQueryBatched, tier="compat")
async def llm_query_batched(
    service: Service, session: Session, given: take.LlmQueryBatched, caller: Caller
) -> ToolAnswer:
    """Queue several queries."""
    rows = service.queries.ask(session, given.prompts, given.model)
    return ToolAnswer({"status": "deferred", "queries": [_deferred(row) for row in rows]}, ("queries",))


@TOOLS.add("Show the current frame and the tree (as frame does).", take.ListVars, tier="compat", read_only=True)
async def flame_status(service: Service, session: Session, given: take.ListVars, caller: Caller) -> ToolAnswer:
    """Show where one is."""
    return service.frames.show(session, caller, None)


@TOOLS.add("Go to a frame (as frame does).", take.Navigate, tier="compat")
async def flame_navigate(service: Service, session: Session, given: take.Navigate, caller: Caller) -> ToolAnswer:
    """Make a frame current."""
    return service.frames.show(session, caller, given.id)


@TOOLS.add("Show the project (as lock does).", take.LockArguments, tier="compat", read_only=True, name="jcode.lock")
async def jcode_lock(service: Service, session: Session, given: take.LockArguments, caller: Caller) -> ToolAnswer:
    """Show the project's lock under the name that its protocol has."""
    return await lock(service, session, given, caller)


def _deferred(row: QueryRow) -> JsonObject:
    said = f"[DEFERRED:{row.id}] LLM query queued"
    return {"status": "deferred", "id": row.id, "prompt": row.prompt, "model": row.model, "message": said}
