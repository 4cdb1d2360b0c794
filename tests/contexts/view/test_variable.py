"""What code in a kernel does with a context: as a dictionary, across processes, and after a fork."""

import copy
import gc
import io
import json
import mmap
import os
import pickle
import random
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_contexts import errors
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text import shared_str
from rlm_contexts.text.model import StoredText
from rlm_contexts.view.variable import ContextVariable, attach

Load = Callable[..., ContextVariable]
LOG = "".join(f"{number} {'ERROR' if number % 7 == 0 else 'info'} something happened\n" for number in range(5000))
SAMPLES = {
    "ascii": LOG,
    "page multiple": "x" * (32 * mmap.PAGESIZE),
    "latin-1": LOG + "caf\xe9\n" * 3000,
    "two bytes": LOG + "\u0416uk\n" * 3000,
    "astral": LOG + "\U0001f600\n",
    "crlf": LOG.replace("\n", "\r\n"),
    "nul": "a\0b\n" * 40_000,
    "small": "only\ntwo",
    "one character": "x",
    "empty": "",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_loaded_variable_is_the_mapping_of_its_text(store: ContextStore, attach_text: Load, name: str) -> None:
    """K-16: lines, content, line_count, size, type and metadata, for every kind of text."""
    text = SAMPLES[name]
    log = attach_text(store, text, type="log", metadata={"source": "test"})
    assert log["content"] == text
    assert type(log["content"]) is str
    plain = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    assert list(log["lines"]) == plain
    assert (log["line_count"], log["size"]) == (len(plain), len(text.encode()))
    assert (log["type"], log["metadata"]) == ("log", {"source": "test"})
    assert list(log) == ["content", "lines", "line_count", "size", "type", "metadata"]


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
def test_content_equals_the_text_for_any_characters(shared_store: ContextStore, attach_text: Load, text: str) -> None:
    """Mapped and wide forms, whatever the widest character is."""
    text *= 70_000 // len(text.encode()) + 1
    log = attach_text(shared_store, text)
    assert log["content"] == text
    assert hash(log["content"]) == hash(text)
    assert log["content"].encode() == text.encode()
    assert len(log["content"]) == len(text)


def test_usual_idioms_work_unchanged(store: ContextStore, attach_text: Load) -> None:
    """What agents write against a string and a list of strings."""
    log, lines = attach_text(store, LOG), LOG.splitlines()
    assert [line for line in log["lines"] if "ERROR" in line] == [line for line in lines if "ERROR" in line]
    assert Counter(line.split()[1] for line in log["lines"]) == Counter(line.split()[1] for line in lines)
    assert "\n".join(log["lines"]) == "\n".join(lines)
    assert sorted(log["lines"]) == sorted(lines)
    assert list(enumerate(log["lines"][:3])) == list(enumerate(lines[:3]))
    assert random.Random(3).sample(log["lines"], 5) == random.Random(3).sample(lines, 5)
    assert (log[10:20], log[3], log[-5:]) == (LOG[10:20], LOG[3], LOG[-5:])
    first, *_, last = log["lines"]
    assert (first, last) == (lines[0], lines[-1])
    assert log.get("nothing") is None
    assert {**log}["line_count"] == 5000


def test_it_prints_short(store: ContextStore, attach_text: Load) -> None:
    """A million characters never end up in an output by accident."""
    log = attach_text(store, "x" * 1_000_000, type="file")
    assert repr(log) == str(log) == f"{log}" == "<context: 1,000,000 bytes, 1 lines, type 'file'>"
    assert repr(log["lines"]) == f"[{'x' * 200!r}… (a line of 1,000,000 bytes)]"


def test_lines_print_as_a_list_does(store: ContextStore, attach_text: Load) -> None:
    """Short ones whole, also those of a part; of others the first and the last, and how many there are."""
    few = [f"line {number}\t'é'" for number in range(100)]
    lines = attach_text(store, "\n".join(few))["lines"]
    assert repr(lines) == str(lines) == f"{lines}" == repr(few)
    assert repr(attach_text(store, "")["lines"]) == "[]"
    many = [f"number {number:,}" for number in range(200_000)]
    shown = str(attach_text(store, "\r\n".join(many))["lines"]).split("\n")
    assert [shown[0], shown[9], shown[11], shown[20]] == [
        "['number 0',", " 'number 9',", " 'number 199,990',", " 'number 199,999']",
    ]  # fmt: skip
    assert shown[10].strip() == "… 199,980 more of 200,000 lines: slice them, or search them with scan …"
    assert len(shown) == 21
    part = str(attach_text(store, "\n".join(many))["lines"][5:150_000]).split("\n")
    assert [part[0], part[20]] == ["['number 5',", " 'number 149,999']"]


@pytest.mark.parametrize("line", [3, 4, 395, 396])
def test_whether_lines_are_short_is_settled_by_their_characters(
    store: ContextStore, attach_text: Load, line: int
) -> None:
    """Up to about 4,000 of them; a short text of many lines is as long when it is printed."""
    lines = attach_text(store, ("x" * line + "\n") * (4000 // (line + 5)))["lines"]
    assert str(lines) == str(list(lines))
    assert len(str(attach_text(store, ("x" * line + "\n") * (4000 // (line + 5) + 21))["lines"])) < 5000


def test_it_becomes_json_like_the_dictionary_it_is(store: ContextStore, attach_text: Load) -> None:
    """json.dumps works on the variable, on its lines, and with an encoder of one's own."""
    log = attach_text(store, SAMPLES["two bytes"])
    plain = {**log, "lines": list(log["lines"])}
    assert json.loads(json.dumps(log)) == plain
    assert json.loads(json.dumps(log["lines"])) == plain["lines"]

    class Encoder(json.JSONEncoder):
        def default(self, o: Any) -> Any:
            return list(o) if isinstance(o, set) else super().default(o)

    assert json.loads(json.dumps({"log": log, "set": {1}}, cls=Encoder)) == {"log": plain, "set": [1]}
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(object())


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"sort_keys": True}])
def test_lines_are_a_list_in_json_whoever_is_asked_for_the_rest(
    store: ContextStore, attach_text: Load, options: dict[str, Any]
) -> None:
    """`default=str` and an encoder of one's own would make one string of them."""
    log = attach_text(store, SAMPLES["two bytes"])
    plain = {**log, "lines": list(log["lines"]), "at": "2026-01-02"}
    mixed = {**log, "at": date(2026, 1, 2)}

    class Encoder(json.JSONEncoder):
        def default(self, o: Any) -> Any:
            return str(o)

    assert json.loads(json.dumps(mixed, default=str, **options)) == plain
    assert json.loads(json.dumps(mixed, cls=Encoder, **options)) == plain
    assert json.loads("".join(Encoder(**options).iterencode(mixed))) == plain
    file = io.StringIO()
    json.dump(mixed, file, default=str, **options)
    assert json.loads(file.getvalue()) == plain


def test_it_is_pickled_and_copied_as_a_plain_dictionary(store: ContextStore, attach_text: Load) -> None:
    """Copies can be changed and read where the package is not installed."""
    log = attach_text(store, SAMPLES["astral"], metadata={"tags": ["a"]})
    plain = {**log, "lines": list(log["lines"])}
    restored = pickle.loads(pickle.dumps(log))
    assert (type(restored), type(restored["lines"]), restored) == (dict, list, plain)
    for copied in (copy.copy(log), log.copy(), dict(log), copy.deepcopy(log)):
        assert type(copied) is dict
        assert copied == plain == log
        copied["content"] = "changed"
    deep = copy.deepcopy(log)
    deep["metadata"]["tags"].append("b")
    assert log["metadata"] == {"tags": ["a"]}
    assert log["content"] == SAMPLES["astral"]


def test_its_own_keys_cannot_be_changed_and_others_can(store: ContextStore, attach_text: Load) -> None:
    """What tools read and what code reads stay the same text; notes may be added."""
    log = attach_text(store, "text")
    attempts: list[Callable[[], object]] = [
        lambda: log.__setitem__("content", "other"),
        lambda: log.__delitem__("lines"),
        lambda: log.update(size=1),
        lambda: log.pop("type"),
        log.popitem,
        log.clear,
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match=r"dict\(name\)"):
            attempt()
    log["errors"] = [1]
    log |= {"more": 2}
    assert (log.pop("errors"), log["more"], log["content"]) == ([1], 2, "text")
    assert isinstance(log, ContextVariable)


def test_mistakes_get_answers_that_teach(store: ContextStore, attach_text: Load) -> None:
    """A wrong key names the right ones; a string method on the variable names the string."""
    log = attach_text(store, "text")
    with pytest.raises(KeyError, match="content, lines"):
        log["text"]
    with pytest.raises(AttributeError, match=r"name\['content'\]\.splitlines"):
        log.splitlines()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        log.nonsense  # noqa: B018


def test_replaced_bytes_are_counted_in_the_metadata(store: ContextStore, attach_text: Load) -> None:
    """Who reads a damaged text can see that it was damaged."""
    log = attach_text(store, b"good \xff bad \xc3(\n")
    assert log["metadata"] == {"utf8_replacements": 2}


def test_a_process_that_opens_no_file_can_attach(store: ContextStore) -> None:
    """Only descriptors and a header cross to the kernel process; there it works without the store."""
    stored = store.put_text(SAMPLES["two bytes"])
    here, there = socket.socketpair()
    with here, there:
        pid = os.fork()
        if pid == 0:
            os._exit(_child_answer(there, store.root))
        with store.shared_text(stored) as shared_text:
            socket.send_fds(here, [json.dumps(shared_text.header).encode()], list(shared_text.fds))
        assert here.recv(100) == b"held"
        assert store.collect(0).removed == ()  # the kernel's pin stands, ours is closed
        here.send(b"go")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.collect(0).removed == (stored.digest,)


def _child_answer(channel: socket.socket, root: Path) -> int:
    """In the child: attach what was sent, with the store's folder out of reach."""
    header, fds, _, _ = socket.recv_fds(channel, 10_000, 5)
    hidden = root.rename(root.with_name("hidden"))
    log = attach(fds, json.loads(header))
    right = log["content"] == SAMPLES["two bytes"] and log["lines"][-1] == "\u0416uk"
    hidden.rename(root)
    channel.send(b"held" if right else b"wrong")
    channel.recv(10)
    return 0 if right else 1


def test_a_fork_sees_the_same_pages_and_its_own_pin(store: ContextStore, attach_text: Load) -> None:
    """A forked kernel reads the text after its parent dropped it, and without private copies."""
    stored = store.put_text("shared line\n" * 1_000_000)
    log: ContextVariable | None = attach_text(store, "shared line\n" * 1_000_000)
    here, there = socket.socketpair()
    with here, there:
        pid = os.fork()
        if pid == 0:
            assert log is not None
            gc.disable()  # a collection writes to every object of the parent's heap
            there.recv(10)
            before = _private_memory()
            right = log["content"].count("line") == 1_000_000 == sum(1 for line in log["lines"] if line)
            grown = _private_memory() - before
            there.send(b"right" if right and grown < 6_000_000 else f"wrong {grown}".encode())
            there.recv(10)
            os._exit(0)
        log = None
        shared_str.release_unused()
        assert store.collect(0).removed == ()
        here.send(b"go")
        assert here.recv(100) == b"right"
        here.send(b"end")
        os.waitpid(pid, 0)
    assert store.collect(0).removed == (stored.digest,)


def _private_memory() -> int:
    """Bytes of anonymous memory: those of files are shared, whoever maps them."""
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in rollup if line.startswith("Anonymous"))


def test_dropping_the_variable_gives_back_its_memory(store: ContextStore, attach_text: Load) -> None:
    """K-6: descriptors and maps are gone when the variable and everything made of it is."""
    descriptors = _descriptors(store)
    log: ContextVariable | None = attach_text(store, LOG)
    assert log is not None
    digest = log.text.facts.digest
    assert _maps(digest) > 0
    content = log["content"]
    log = None
    shared_str.release_unused()
    assert content.startswith("0 ERROR")
    assert _maps(digest) > 0
    del content
    shared_str.release_unused()
    assert (_maps(digest), _descriptors(store)) == (0, descriptors)


def _descriptors(store: ContextStore) -> int:
    """How many descriptors of the store's files are open: others may be closed meanwhile, with what held them."""
    opened = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            opened += os.readlink(link).startswith(str(store.root))
    return opened


def _maps(digest: str) -> int:
    return Path("/proc/self/maps").read_text().count(f"{digest}.text")


def test_small_texts_hold_no_descriptor(store: ContextStore, attach_text: Load) -> None:
    """A kernel may open few files; hundreds of small contexts must not use them up."""
    descriptors = _descriptors(store)
    kept = [attach_text(store, f"small {number}") for number in range(50)]
    assert _descriptors(store) == descriptors
    assert kept[7]["content"] == "small 7"


@pytest.mark.parametrize("change", [{"size": 10**9}, {"size": "1"}, {"unit": None}, {"chars": 10**9}])
def test_a_header_that_does_not_fit_is_refused_and_leaks_nothing(store: ContextStore, change: dict[str, Any]) -> None:
    """Never a map beyond the end of a file."""
    descriptors = _descriptors(store)
    shared_text = store.shared_text(store.put_text(SAMPLES["two bytes"]))
    assert _descriptors(store) > descriptors
    with pytest.raises(errors.CorruptText, match="load"):
        attach(shared_text.fds, {**shared_text.header, **change})
    assert _descriptors(store) == descriptors


def test_facts_survive_json(store: ContextStore) -> None:
    """A header read back is the same; one that lacks a field says which."""
    stored = store.put_text(LOG)
    header = json.loads(json.dumps(stored.to_dict()))
    assert StoredText.from_dict({**header, "unknown": 1}) == stored
    del header["crlf"]
    with pytest.raises(errors.CorruptText, match="crlf"):
        StoredText.from_dict(header)
