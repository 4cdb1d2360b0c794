"""Runs cases, each in a process of its own: `python worker.py plain|wall POLICY MODULE,... UNBLOCK < cases > outcomes`.

A case is one line of JSON on standard input, its outcome one line on standard output. The process that reads them
has imported the libraries and, for ``wall``, raised the language wall; it forks a child for each case and ends it
when its time is up.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import importlib
import io
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import types
import unittest
import warnings
from typing import Any

from cases import Case, Outcome, Step

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import Policy, load_policy, resolve

SECONDS = 20.0
DATA_BYTES = 3 << 30


class Plain:
    """Runs cells as CPython does."""

    def compile(self, source: str, mode: str) -> types.CodeType:
        """Compile a cell."""
        return compile(source, "<cell>", mode, dont_inherit=True)

    def run(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """Run a compiled cell."""
        namespace["__builtins__"] = builtins
        exec(code, namespace)


class Walled:
    """Runs cells as a session's kernel does."""

    def __init__(self, policy: Policy, folder: str) -> None:
        self.wall = LanguageWall(resolve(policy, folder, folder))

    def compile(self, source: str, mode: str) -> types.CodeType:
        """Compile a cell."""
        return self.wall.compile(source, "<cell>", mode)

    def run(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """Run a compiled cell."""
        self.wall.begin_cell()
        self.wall.prepare(namespace)
        with self.wall.user():
            exec(code, namespace)
        if hasattr(builtins, "_"):  # the value that was shown last; in a kernel IPython keeps it
            self.wall.builtins["_"] = builtins._


def refusal_of(error: BaseException) -> str:
    """The rule of the policy or of the wall that said no, anywhere in the chain of causes; or ''."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, CellError):
            return current.rule
        current = current.__cause__ or current.__context__
    return ""


def _record(step: Step, error: BaseException) -> None:
    plain = next(kind for kind in type(error).__mro__ if not kind.__module__.startswith("rlm_sandbox"))
    step.error, step.refusal = plain.__name__, refusal_of(error)
    try:
        step.detail = f"{type(error).__name__}: {error}"[:500]
    except Exception as second:
        step.detail = f"{type(error).__name__}, whose text raises {type(second).__name__}"


def _run_cell(runner: Plain | Walled, source: str, mode: str, namespace: dict[str, Any]) -> Step:
    step, output = Step(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            runner.run(runner.compile(source, mode), namespace)
    except BaseException as error:
        _record(step, error)
    step.output = output.getvalue()[:100_000]
    return step


class _Recorder(unittest.TestResult):
    """Keeps what each test showed."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """A test passed."""
        self.steps.append(Step())

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """A test, or what it called, raised."""
        step = Step()
        _record(step, err[1])
        self.steps.append(step)

    addFailure = addError  # noqa: N815


def _run_tests(source: str, namespace: dict[str, Any]) -> list[Step]:
    place = {**namespace, "__builtins__": builtins}
    recorder = _Recorder()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(source, "<tests>", "exec", dont_inherit=True), place)
            loader = unittest.TestLoader()
            for value in list(place.values()):
                if isinstance(value, type) and issubclass(value, unittest.TestCase):
                    loader.loadTestsFromTestCase(value).run(recorder)
    except BaseException as error:
        step = Step()
        _record(step, error)
        recorder.steps.append(step)
    return recorder.steps


def _run_case(case: Case, runner: Plain | Walled) -> Outcome:
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    steps = [_run_cell(runner, cell, case.mode, vars(main)) for cell in case.cells]
    if case.tests:
        steps += _run_tests(case.tests, vars(main))
    return Outcome(case.name, steps)


def _child(case: Case, policy: Policy | None, writing: int, folder: str) -> None:
    os.chdir(folder)
    tempfile.tempdir = folder
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    warnings.simplefilter("ignore")
    runner = Plain() if policy is None else Walled(policy, folder)
    text = json.dumps(dataclasses.asdict(_run_case(case, runner))).encode()
    with open(writing, "wb") as pipe:
        pipe.write(text)


def _isolated(case: Case, policy: Policy | None) -> Outcome:
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                os.close(reading)
                _child(case, policy, writing, os.path.realpath(folder))
            finally:
                os._exit(0)
        os.close(writing)
        try:
            answer = _read(reading)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
    if answer is None:
        return Outcome(case.name, fate="timeout")
    return Outcome.from_json(json.loads(answer)) if answer else Outcome(case.name, fate="died")


def _read(descriptor: int) -> bytes | None:
    parts: list[bytes] = []
    while select.select([descriptor], [], [], SECONDS)[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def main(mode: str, policy_name: str, modules: str, unblock: str) -> None:
    """Answer every case on standard input."""
    policy = load_policy(policy_name)
    if unblock == "1":
        policy = dataclasses.replace(policy, language=dataclasses.replace(policy.language, blocked_names=()))
    for name in filter(None, modules.split(",")):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if mode == "wall":
        LanguageWall.preload(policy)
    for line in sys.stdin:
        data = json.loads(line)
        case = Case(**{**data, "cells": tuple(data["cells"])})
        outcome = _isolated(case, policy if mode == "wall" else None)
        print(json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
