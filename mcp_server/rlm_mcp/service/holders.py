"""The holders of claims, and whether they are alive.

* A client of our socket is alive while its connection is open. When that ends, its frames are free. A new daemon finds
  out which clients of the last one are alive: by the files that their fronts hold locked, else by their processes.
* A shell command ends at once. It claims for a process above it, whose descriptor is watched.
* A client over HTTP holds its lease for a time, which any call with its token extends.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import secrets
from collections.abc import Callable
from contextlib import suppress

from rlm_ipc import life_lock, process_identity
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.errors import ToolFault
from rlm_memory.errors import StoreFault
from rlm_memory.store import Store
from rlm_memory.work import holders, leases
from rlm_memory.work.holders import Holder

log = logging.getLogger(__name__)

ANCESTOR = "ancestor"
"""The holder that a command names to claim for a process above it."""
DEFAULT_SECONDS = 120.0
SHORTEST_SECONDS = 1.0
"""A shorter lease would expire before a caller had read its token."""
LONGEST_SECONDS = 86_400.0
_BEAT_SECONDS = 20.0
"""How often the activity of a holder is recorded."""
_LOOK_SECONDS = 0.1
"""How often to poll holders that have no connection or process descriptor."""
_LOOK_AT_TIMES_SECONDS = 0.5
_LOOK_AFTER_FAULT_SECONDS = 1.0
_LOCK, _PROCESS = "lock:", "process:"


class Holders:
    """The holders of all leases. ``runtime`` is the folder in which fronts lock their files."""

    def __init__(self, store: Store, clock: Callable[[], float], runtime: str) -> None:
        self._store, self._clock, self._runtime = store, clock, runtime
        self._connections: dict[str, set[int]] = {}
        """Open connections by holder."""
        self._clients: dict[int, ClientInfo] = {}
        self._since: dict[int, float] = {}
        """The start times of connections."""
        self._of_connection: dict[int, set[str]] = {}
        self._beats: dict[str, float] = {}
        self._processes: dict[str, int] = {}
        """Process descriptors by holder."""
        self._task: asyncio.Task[None] | None = None

    # --- connections ------------------------------------------------------------------------------

    def connected(self, client: ClientInfo) -> None:
        """Note that a client has connected; it may have claims from the last daemon."""
        self._clients[client.connection] = client
        self._since[client.connection] = self._clock()
        if (known := holders.of_proof(self._store, "connection", self._proof(client))) and known.gone_at is None:
            self._tie(known.id, client)

    def left(self, client: ClientInfo) -> None:
        """Free the claims of a client that has disconnected."""
        self._clients.pop(client.connection, None)
        self._since.pop(client.connection, None)
        for holder in self._of_connection.pop(client.connection, set()):
            mine = self._connections.get(holder, set())
            mine.discard(client.connection)
            if not mine:
                self._connections.pop(holder, None)
                self._free(holder, "its connection ended")

    def stopped(self, client: ClientInfo) -> None:
        """Free the claims of one agent of a client that stays connected; the agent regains them if it continues."""
        holder = holders.of_proof(self._store, "connection", self._proof(client))
        if holder is None or holder.gone_at is not None:
            return
        for connection in self._connections.pop(holder.id, ()):
            self._of_connection.get(connection, set()).discard(holder.id)
        self._free(holder.id, "its agent stopped")

    # --- who a call is of -------------------------------------------------------------------------

    def find(self, client: ClientInfo, said: str | None = None) -> Holder | None:
        """Return the holder that a call means, if it has claimed anything yet; see `of`."""
        if said is None:
            known = client.connection and holders.of_proof(self._store, "connection", self._proof(client))
            return self._enlisted(client) if known else None
        if said == ANCESTOR:
            above = self._nearest(client)
            return self.of(client, said)[0] if above and holders.of_proof(self._store, *above[:2]) else None
        if said.startswith("pid:"):
            known = holders.of_proof(self._store, "process", self._of_pid(said))
            return self.of(client, said)[0] if known else None
        return None if said.startswith("ttl:") else self._of_token(said)

    def known(self, client: ClientInfo, said: str | None = None) -> str:
        """Return the id of the holder that a call means; empty if it has claimed nothing yet."""
        found = self.find(client, said)
        return "" if found is None else found.id

    def writer(self, client: ClientInfo, said: str | None, held_by: str | None) -> str:
        """Return the id of the holder by which a call writes to a frame that ``held_by`` has claimed; see `known`.

        A client may write for a process above it: an agent shares the lease of the process that started it.
        """
        own = self.known(client, said)
        if held_by is None or own == held_by or said not in (None, ANCESTOR) or client.peer < 0:
            return own
        holder = holders.find(self._store, held_by)
        if holder is None or holder.anchor != "process":
            return own
        proof = holder.proof.removeprefix(_PROCESS)
        above = process_identity.pid_in(proof) in process_identity.ancestors(client.peer)
        return held_by if above and process_identity.is_alive(proof) else own

    def of(self, client: ClientInfo, said: str | None = None) -> tuple[Holder, str | None]:
        """Return the holder for which a call claims, and the token if it is a new one with a time limit.

        Raises:
            ToolFault: this caller has nothing that can hold a lease, or the process or token does not exist.
        """
        if said is None:
            if not client.connection:
                hint = "pass holder='ttl:120', and in later calls the token from the answer as holder"
                raise ToolFault("no_holder", "a claim needs an owner, and this caller has no connection", hint)
            return self._enlisted(client), None
        if said == ANCESTOR:
            kind, proof, label = self._above(client)
            if kind == "connection":
                return self._enlisted(self._front_of(proof)), None
            return self._process(client, proof, label), None
        if said.startswith("pid:"):
            proof = self._of_pid(said)
            return self._process(client, proof, f"process {said.removeprefix('pid:')}"), None
        if said.startswith("ttl:"):
            return self.for_time(_seconds(said), "by time", client.cwd)
        return self._of_token(said), None

    def check(self, client: ClientInfo, said: str | None) -> None:
        """Raise what `of` does, and make no holder by time: its time would begin now."""
        if said is not None and said.startswith("ttl:"):
            _check(_seconds(said))
        else:
            self.of(client, said)

    def renew(self, said: str | None) -> float | None:
        """Extend a token's lease once a third of its time has passed. Return when to do it again, in seconds.

        None: the holder that a call means has no time limit, or is made only when the call has found a task.

        Raises:
            ToolFault: the token does not exist, or its lease has expired.
        """
        if said is None or said == ANCESTOR or said.startswith(("pid:", "ttl:")):
            return None
        holder, seconds = self._find_token(said)
        pause, now = seconds / 3, self._clock()
        if now - holder.beat_at >= pause:
            holders.beat(self._store, holder, now=now, seconds=seconds)
        return pause

    def since(self, client: ClientInfo) -> float:
        """Return when a client's connection began; leases that others lost later are not its own."""
        return self._since.get(client.connection, 0.0)

    def stir(self, client: ClientInfo) -> None:
        """Note a client's call: its claims are not stale."""
        now = self._clock()
        for holder in self._of_connection.get(client.connection, ()):
            if now - self._beats.get(holder, 0.0) > _BEAT_SECONDS and (known := holders.find(self._store, holder)):
                self._beats[holder] = now
                holders.beat(self._store, known, now=now)

    def near(self, pids: set[int]) -> list[str]:
        """List the holders that are one of these processes or belong to one: so a hook finds its own."""
        found = []
        for holder in holders.living(self._store):
            own = {
                process_identity.pid_in(part.removeprefix(_PROCESS).partition("~")[0])
                for part in (holder.proof, holder.kin or "")
            }
            if pids & own:
                found.append(holder.id)
        return found

    # --- life -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Check, when a daemon starts, which holders of the last one are alive, and watch those from now on."""
        now = self._clock()
        if holders.note_boot(self._store, process_identity.boot()):
            leases.fenced_anew(self._store, now=now, why="the machine was restarted")
        life_lock.remove_unheld(self._runtime)
        for holder in holders.living(self._store):
            if not self._lives(holder, now):
                self._free(holder.id, "it ended while no daemon ran")
            elif holder.anchor == "process":
                self._await(holder)
        self._look_after()

    def close(self) -> None:
        """Stop watching holders."""
        if self._task is not None:
            self._task.cancel()
        for holder in list(self._processes):
            self._forget_process(holder)

    def _look_after(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_now_and_then())

    async def _look_now_and_then(self) -> None:
        """Poll the holders without connection and descriptor, as long as there are any."""
        while True:
            try:
                left = [one for one in holders.living(self._store) if not self._is_tied(one.id)]
                for holder in left:
                    if not self._lives(holder, self._clock()):
                        self._free(holder.id, "its time has expired" if holder.anchor == "time" else "it has ended")
            except StoreFault:
                log.warning("cannot check whether holders are alive; trying again", exc_info=True)
                pause = _LOOK_AFTER_FAULT_SECONDS
            else:
                if not left:
                    return
                soon = any(one.anchor != "time" for one in left)
                pause = _LOOK_SECONDS if soon else _LOOK_AT_TIMES_SECONDS
            await asyncio.sleep(pause)

    def _is_tied(self, holder: str) -> bool:
        return bool(self._connections.get(holder)) or holder in self._processes

    def _lives(self, holder: Holder, now: float) -> bool:
        if holder.anchor == "time":
            return holder.expires_at is None or now < holder.expires_at
        proof = holder.proof.partition("#")[0].partition("~")[0]
        if proof.startswith(_LOCK):
            return life_lock.is_held(self._runtime, proof.removeprefix(_LOCK))
        return process_identity.is_alive(proof.removeprefix(_PROCESS))

    def _free(self, holder: str, why: str) -> None:
        self._forget_process(holder)
        freed = leases.free(self._store, holder, now=self._clock(), why=why)
        if freed:
            log.info("frames are free", extra={"holder": holder, "frames": freed, "reason": why})

    def _await(self, holder: Holder) -> None:
        """Free a process's claims as soon as it ends."""
        pid = process_identity.pid_in(holder.proof.removeprefix(_PROCESS))
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self._look_after()
            return
        if not self._lives(holder, self._clock()):  # it ended before the descriptor was opened, and its id was reused
            os.close(descriptor)
            self._free(holder.id, "it has ended")
            return
        self._processes[holder.id] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._free, holder.id, "its process ended")

    def _forget_process(self, holder: str) -> None:
        if (descriptor := self._processes.pop(holder, None)) is not None:
            with suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    # --- kinds of holders -------------------------------------------------------------------------

    def _enlisted(self, client: ClientInfo) -> Holder:
        kin = next(process_identity.ancestors(client.peer), -1) if life_lock.is_name(client.lock) else client.peer
        label = f"client {client.pid}" + (f" ({client.agent})" if client.agent else "")
        found = holders.enlist(
            self._store,
            "connection",
            self._proof(client),
            kin=process_identity.identity(kin) if kin > 0 else None,
            label=label,
            worktree=client.cwd,
            now=self._clock(),
        )
        self._tie(found.id, client)
        return found

    def _tie(self, holder: str, client: ClientInfo) -> None:
        self._connections.setdefault(holder, set()).add(client.connection)
        self._of_connection.setdefault(client.connection, set()).add(holder)

    def _proof(self, client: ClientInfo) -> str:
        if life_lock.is_name(client.lock):
            whose = f"{_LOCK}{client.lock}"
        else:
            whose = f"{_PROCESS}{process_identity.identity(client.peer)}~{client.lock}"
        return f"{whose}#{client.agent}" if client.agent else whose

    def _process(self, client: ClientInfo, proof: str, label: str) -> Holder:
        kin = proof.removeprefix(_PROCESS)
        found = holders.enlist(
            self._store, "process", proof, kin=kin, label=label, worktree=client.cwd, now=self._clock()
        )
        if found.id not in self._processes:
            self._await(found)
        return found

    def for_time(self, seconds: float, label: str, worktree: str) -> tuple[Holder, str]:
        """Return a new holder with this time limit, and the token with which calls extend it.

        Raises:
            ToolFault: the time is too short, too long or not valid.
        """
        _check(seconds)
        token = f"lease-{secrets.token_urlsafe(18)}"
        proof = f"{seconds:g}:{_hash(token)}"
        found = holders.enlist(
            self._store, "time", proof, label=label, worktree=worktree, now=self._clock(), seconds=seconds
        )
        self._look_after()
        return found, token

    def _of_token(self, token: str) -> Holder:
        holder, seconds = self._find_token(token)
        holders.beat(self._store, holder, now=self._clock(), seconds=seconds)
        return holder

    def _find_token(self, token: str) -> tuple[Holder, float]:
        hashed = _hash(token)
        for holder in holders.living(self._store):
            seconds, _, proof = holder.proof.partition(":")
            if holder.anchor == "time" and secrets.compare_digest(proof, hashed):
                return holder, float(seconds)
        hint = "claim again with holder='ttl:120'"
        raise ToolFault("lease_over", "the token is unknown, or its lease has expired", hint)

    def _of_pid(self, said: str) -> str:
        number = said.removeprefix("pid:")
        found = process_identity.identity(int(number)) if number.isdecimal() and len(number) < 10 else None
        if found is None:
            hint = "name one of your processes that keeps running, such as the shell: --pid $$"
            raise ToolFault("no_holder", f"there is no process {number[:20]} of this user", hint)
        return f"{_PROCESS}{found}"

    def _above(self, client: ClientInfo) -> tuple[holders.Anchor, str, str]:
        """Return the process that a command claims for, as `_nearest`; raises ToolFault if there is none."""
        if (found := self._nearest(client)) is None:
            hint = "pass --pid of a process that keeps running (in a shell: --pid $$), or --ttl SECONDS"
            raise ToolFault(
                "no_holder", "a claim needs an owner, and this command was not started by an MCP agent", hint
            )
        return found

    def _nearest(self, client: ClientInfo) -> tuple[holders.Anchor, str, str] | None:
        """Return the front of a command's agent, or the program of several agents: anchor, proof, label.

        It is the nearest process above the command that has a connected front as a child.
        """
        fronts: dict[int, list[ClientInfo]] = {}
        for one in self._clients.values():
            if life_lock.is_name(one.lock) and (parent := next(process_identity.ancestors(one.peer), None)) is not None:
                fronts.setdefault(parent, []).append(one)
        for pid in process_identity.ancestors(client.peer):
            if pid not in fronts:
                continue
            if len(fronts[pid]) == 1:
                return "connection", self._proof(fronts[pid][0]), ""
            if (found := process_identity.identity(pid)) is not None:
                return "process", f"{_PROCESS}{found}", f"process {pid}"
        return None

    def _front_of(self, proof: str) -> ClientInfo:
        return next(one for one in self._clients.values() if self._proof(one) == proof)


def _seconds(said: str) -> float:
    try:
        return float(said.removeprefix("ttl:") or DEFAULT_SECONDS)
    except ValueError:
        return math.nan


def _check(seconds: float) -> None:
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        limits = f"a lease lasts {SHORTEST_SECONDS:.0f} to {LONGEST_SECONDS:,.0f} seconds"
        hint = f"give a number in these limits: holder='ttl:{DEFAULT_SECONDS:.0f}'"
        raise ToolFault("invalid_arguments", limits, hint)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
