"""The table of jobs: requests and replies survive the pipe, and what a process says otherwise is believed by nobody."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from protocol_samples import sample
from sample_files import write_pdf
from session_processes import children_with

from rlm_contexts import errors
from rlm_contexts.helpers import protocol
from rlm_contexts.helpers.job import Job, JobLimits, messages
from rlm_contexts.helpers.protocol import (
    JOBS,
    DocumentKind,
    DocumentPart,
    Fault,
    FaultKind,
    JobLine,
    JobRequest,
    JobSpec,
    ReadDocument,
    RunSql,
    job_of,
)
from rlm_ipc.messages import plain, read

MESSAGES = dict.fromkeys((JobSpec, JobLine, *(kind for job in JOBS.values() for kind in (job.request, job.reply))))
LIMITS = JobLimits(seconds=60, memory=512 << 20, answer=1 << 20)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_survives_the_pipe(kind: type) -> None:
    """What one side writes the other reads as the same; a field that the codec does not know fails here."""
    message = sample(kind)
    assert read(kind, json.loads(json.dumps(plain(message)))) == message


def test_every_request_of_the_protocol_is_a_job() -> None:
    """A request that the table lacks could be written and never be done."""
    kinds = [kind for kind in vars(protocol).values() if isinstance(kind, type)]
    requests = {kind for kind in kinds if issubclass(kind, JobRequest) and kind is not JobRequest}
    assert requests == {job.request for job in JOBS.values()}
    assert {job_of(sample(kind)) for kind in requests} == JOBS.keys()


def test_an_error_of_a_statement_is_the_callers() -> None:
    """The kind of a fault is a field; what its text says decides nothing."""
    with pytest.raises(errors.QueryRefused, match="nowhere"):
        list(messages(Job(RunSql("SELECT * FROM nowhere", ())), LIMITS))


@pytest.mark.parametrize(
    "line",
    [
        {"reply": {"name": 7, "text": "x"}},
        {"reply": {"name": "page 1", "text": "x", "more": True}},
        {"reply": {"rows": [[1]]}},
        {"reply": None},
        {"done": True},
        {"fault": {"kind": "no such kind", "message": "x"}},
        {"fault": "source", "message": "x"},
        [1],
    ],
)
def test_a_process_that_says_something_else_has_died_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: object
) -> None:
    """A library that a hostile file has taken over may write anything; it is read as declared, or not at all."""
    (tmp_path / "pypdf.py").write_text(f"print({json.dumps(line)!r}, flush=True)\nimport time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = Job(ReadDocument(DocumentKind.PDF))
    with (
        write_pdf(tmp_path / "a.pdf", "x").open("rb") as file,
        pytest.raises(errors.HelperDied, match="a malformed answer"),
    ):
        list(messages(dataclasses.replace(job, fd=file.fileno()), LIMITS))
    assert children_with("rlm_contexts.helpers") == []


def test_what_a_process_says_rightly_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side of the test above: the same way, with lines as declared."""
    lines = (
        JobLine(reply=plain(DocumentPart("page 1", "text"))),
        JobLine(fault=Fault(FaultKind.SOURCE, "torn", "mend it")),
    )
    written = "\n".join(json.dumps(plain(line)) for line in lines)
    (tmp_path / "pypdf.py").write_text(f"print({written!r}, flush=True)\nimport time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with write_pdf(tmp_path / "a.pdf", "x").open("rb") as file:
        said = messages(Job(ReadDocument(DocumentKind.PDF), fd=file.fileno()), LIMITS)
        assert next(said) == DocumentPart("page 1", "text")
        with pytest.raises(errors.SourceError) as caught:
            next(said)
    assert (caught.value.what, caught.value.hint) == ("torn", "mend it")
