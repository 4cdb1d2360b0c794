"""Scan finds exactly the lines that Python's re finds, says when there are more, and never hangs."""

import re
import signal
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line_loops import split_lines
from scan_pairs import ATOMS, ENDS, NARROW, SUFFIXES, WIDE, WORD_ATOMS, WORDS, batch

from rlm_contexts import errors
from rlm_contexts.search import charsets
from rlm_contexts.search.literals import needles_for
from rlm_contexts.search.scan import scan
from rlm_contexts.search.strategy import plan_for
from rlm_contexts.searches import MAX_MATCHES, ScanResult
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text
from rlm_contexts.view.variable import ContextVariable

EXAMPLES = 500
"""`make fuzz-scan` goes through more, without shrinking."""
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda body: f"({body})"),
        inner.map(lambda body: f"(?:|{body})"),
        inner.map(lambda body: f"({body})\\1"),
        inner.map(lambda body: f"(?>{body})"),
        inner.map(lambda body: f"({body})?(?(1)a|b)"),
        st.tuples(inner, st.sampled_from(SUFFIXES)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)

WORD_PATTERNS = st.recursive(
    st.sampled_from(WORD_ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=12).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(SUFFIXES)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda body: f"(?>{body})"),
    ),
    max_leaves=8,
)
WORD_TEXTS = st.lists(
    st.lists(st.sampled_from([*WORDS, *map(str.upper, WORDS), "error error", "x", "17"]), max_size=4).map(" ".join),
    max_size=12,
).flatmap(lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines)))
"""Words, so that patterns have literals to look for."""


def texts(alphabet: str) -> st.SearchStrategy[str]:
    """Short texts of few characters, so that patterns often match, with both line ends."""
    pieces = st.one_of(st.sampled_from(alphabet), st.sampled_from(ENDS))
    return st.lists(pieces, max_size=25).map("".join)


def compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what Python refuses."""
    try:
        return re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError):
        return None


@settings(max_examples=EXAMPLES)
@given(PATTERNS, st.one_of(texts(NARROW), texts(WIDE)))
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_it_finds_the_lines_that_python_finds(pattern: str, text: str) -> None:
    """K-3: for any pattern and text, the lines are those of re.search, with the text that peek returns."""
    regex = compiled(pattern)
    if regex is None:
        return
    context, lines = Text.from_bytes(text.encode()), split_lines(text)
    wanted = [number for number, line in enumerate(lines) if regex.search(line)]
    for source in (context, text, Lines(context), lines):
        found = scan(source, pattern, max_matches=200)
        assert [match.line for match in found.matches] == wanted
        assert [match.text for match in found.matches] == [lines[number] for number in wanted]
        assert (found.truncated, found.total, found.exact) == (False, len(wanted), True)
    assert [context.peek(number, 1).text for number in wanted] == [lines[number] for number in wanted]


@pytest.mark.parametrize("pattern", ["{}", "a{}", "{}b"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_atom_finds_what_python_finds(pattern: str) -> None:
    """K-3: random patterns seldom are a single atom beside the one character that tells what it means."""
    for alphabet, end in product((NARROW, WIDE), ("\n", "\r\n")):
        rows = [row for char in alphabet for row in (char, f"a{char}", f"{char}b") if not row.endswith("\r")]
        source = Text.from_bytes(end.join(rows).encode())
        for regex in filter(None, (compiled(pattern.format(atom)) for atom in ATOMS)):
            found = [match.line for match in scan(source, regex.pattern, max_matches=200).matches]
            assert found == [line for line, row in enumerate(rows) if regex.search(row)], regex.pattern


@settings(max_examples=EXAMPLES)
@given(WORD_PATTERNS, WORD_TEXTS, st.binary(max_size=64))
def test_every_line_that_matches_holds_a_needle(pattern: str, text: str, sample: bytes) -> None:
    """K-3: whatever literals are looked for, chosen by whatever sample, no line that matches is skipped."""
    regex = compiled(pattern)
    if regex is None:
        return
    context, lines = Text.from_bytes(text.encode()), split_lines(text)
    wanted = [number for number, line in enumerate(lines) if regex.search(line)]
    assert [match.line for match in scan(context, pattern, max_matches=200).matches] == wanted
    needles = needles_for(regex, context.facts.ascii)
    for chosen in () if needles is None else (needles, needles.tuned(sample), needles.tuned(text.encode())):
        hits = {context.index.line_of(at) for _, at, _ in chosen.program.find_matches_as_indexes(context.view)}
        assert hits == set(wanted) if chosen.pure else hits >= set(wanted)


def test_pairs_compared_at_length_agree_and_a_wrong_search_is_found_out() -> None:
    """What `make fuzz-scan` goes through, in small: no pair differs, unless a match is withheld."""
    tally = batch("any")
    assert (tally.wrong, tally.compared > 80) == ([], True)

    def forgetful(*args: Any, **more: Any) -> ScanResult:
        found = scan(*args, **more)
        return replace(found, matches=found.matches[1:])

    assert len(batch("any", forgetful).wrong) > 10


@pytest.mark.parametrize(
    "pattern",
    [
        "deadlock detected",
        "zebra|lock id=9{3}",
        "took [0-9]{4} ms",
        "[0-9]{7,} ms",
        "error",
        r"\berror\b.*worker-3",
        "lock",
    ],
)
def test_needles_that_turn_out_common_are_changed_or_dropped(pattern: str) -> None:
    """K-3: in a long text the search is adapted to what is in it; what it finds and counts stays the same."""
    rows = [
        f"{number} lock worker-{number % 7} {'ERROR' if number % 13 == 5 else 'ok'} id={number % 1013} took {number} ms"
        for number in range(40_000)
    ]
    rows[30_000] += " deadlock detected"
    wanted = [number for number, row in enumerate(rows) if re.search(pattern, row, re.IGNORECASE)]
    context = Text.from_bytes("\n".join(rows).encode())
    assert context.size > 1 << 20
    found = scan(context, pattern, max_matches=200)
    assert [match.line for match in found.matches] == wanted[:200]
    total = scan(context, pattern, max_matches=1, count_seconds=30, start_line=5)
    assert (total.total, total.exact) == (sum(number >= 5 for number in wanted), True)


@settings(max_examples=EXAMPLES // 2)
@given(WORD_PATTERNS, WORD_TEXTS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_flags_mean_what_they_mean_to_python(
    pattern: str, text: str, case_sensitive: bool, fixed: bool, word: bool, invert: bool
) -> None:
    """K-3, ours: case, fixed string, whole word and inversion, in every combination."""
    edges = [r"\b" if char.isalnum() or char == "_" else "" for char in (pattern[:1], pattern[-1:])]
    meant = re.escape(pattern) if fixed else f"(?:{pattern})"
    if word:
        meant = f"{edges[0]}{meant}{edges[1]}" if fixed else rf"\b{meant}\b"
    if compiled(meant) is None:
        return
    regex = re.compile(meant, re.NOFLAG if case_sensitive else re.IGNORECASE)
    context, lines = Text.from_bytes(text.encode()), split_lines(text)
    wanted = [number for number, line in enumerate(lines) if bool(regex.search(line)) != invert]
    how = {"case_sensitive": case_sensitive, "fixed": fixed, "word": word, "invert": invert}
    for source in (context, lines):
        assert [match.line for match in scan(source, pattern, max_matches=200, **how).matches] == wanted
    starts = [0, len(lines) // 3, len(lines) // 2]
    first = scan(context, pattern, max_matches=1, count_seconds=20, **how)
    assert (first.total, first.exact) == (len(wanted), True)
    counted = scan(context, pattern, max_matches=1, count_seconds=20, parts=starts, **how)
    ends = [*starts[1:], len(lines)]
    assert counted.part_counts == tuple(
        sum(low <= number < high for number in wanted) for low, high in zip(starts, ends, strict=True)
    )


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        *[("(?i)foo", "a FOO b", True), ("(?x) f o o # foo", "a foo b", True)],
        *[("foo", "afoo", False), ("foo|bar", "xbar", False)],
    ],
)
def test_a_whole_word_keeps_the_patterns_own_flags(pattern: str, line: str, matches: bool) -> None:
    """Flags at the start of a pattern stay there; a comment does not swallow the boundary."""
    assert bool(scan(line, pattern, word=True, case_sensitive=True).matches) == matches


def test_a_bad_part_is_refused_and_a_spent_budget_is_not_exact() -> None:
    """Parts ascend; without time for it the counts are lower bounds."""
    with pytest.raises(errors.BadRange, match="ascending"):
        scan(Text.from_bytes(b"a\nb\n"), "a", parts=[1, 0])
    assert not scan(Text.from_bytes(b"a\nb\n"), "a", parts=[0, 1]).exact


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 12), st.integers(0, 3))
def test_truncated_means_that_there_are_more_matches(hits: list[bool], max_matches: int, context_lines: int) -> None:
    """K-3: exactly max_matches hits is not truncated; one more is, and next_line leads to it."""
    lines = ["hit" if hit else "miss" for hit in hits]
    wanted = [number for number, hit in enumerate(hits) if hit]
    for source in ("\n".join(lines), lines):
        found = scan(source, "HIT", max_matches=max_matches, context_lines=context_lines, count_seconds=5)
        assert [match.line for match in found.matches] == wanted[:max_matches]
        assert found.truncated == (len(wanted) > max_matches)
        assert found.total == len(wanted) or (not found.exact and found.total == max_matches + 1)
        for match in found.matches:
            low = max(0, match.line - context_lines)
            around = lines[low : match.line + context_lines + 1] if context_lines else []
            assert list(match.context) == around
        if found.truncated:
            assert found.next_line is not None
            rest = scan(source, "HIT", start_line=found.next_line)
            assert [match.line for match in rest.matches] == wanted[max_matches:]


def test_every_block_of_a_long_text_is_searched(
    store: ContextStore, attach_text: Callable[..., ContextVariable]
) -> None:
    """Blocks end at line ends; a line longer than all blocks is one line."""
    lines = [f"line {number} " + "x" * (number % 300) for number in range(60_000)]
    lines[40_000] = "y" * 6_000_000 + "needle"
    for number in (0, 17, 59_999):
        lines[number] += " NEEDLE"
    log = attach_text(store, "\n".join(lines))
    found = scan(log, "needle")
    assert [match.line for match in found.matches] == [0, 17, 40_000, 59_999]
    clipped = found.matches[2]
    assert (clipped.clipped, len(clipped.text), "needle" in clipped.text) == (True, 2000, True)
    total = scan(log, "line", max_matches=1, count_seconds=30)
    assert (total.truncated, total.total, total.exact) == (True, 59_999, True)


def test_more_matches_than_the_most_are_clamped() -> None:
    """K-3: max_matches above 200 gives 200."""
    found = scan("x\n" * 500, "x", max_matches=100_000)
    assert (len(found.matches), found.truncated, found.next_line) == (MAX_MATCHES, True, 200)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [("(", 0), ("a**", 2), ("[z-a]", 1), ("x{5,2}", 2), ("(?P<n>a)(?P<n>b)", 12), ("\\", 0)],
)
def test_a_bad_pattern_is_refused_with_its_position(pattern: str, position: int) -> None:
    """K-3: invalid_regex, with the place of the mistake."""
    with pytest.raises(errors.InvalidRegex, match="invalid regular expression") as caught:
        scan("text", pattern)
    assert (caught.value.pattern, caught.value.position) == (pattern, position)


@pytest.mark.parametrize("pattern", ["a" * 10_001, "a{99999999999999999999}", "(" * 3000 + ")" * 3000])
def test_an_outsized_pattern_is_refused(pattern: str) -> None:
    """Too long, too many repeats, nested too deeply: an error, not a crash."""
    with pytest.raises(errors.InvalidRegex):
        scan("text", pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "(.*a){20}b", r"(\w+\s?)+!"])
def test_a_catastrophic_pattern_is_linear_on_a_text(pattern: str) -> None:
    """K-3: patterns that would take `re` longer than the age of the universe simply do not match."""
    assert scan("a" * 5000 + "c\n", pattern, seconds=30).matches == ()


@pytest.mark.parametrize("source", ["text", "items"])
def test_a_pattern_that_must_backtrack_ends_in_time(source: str) -> None:
    """K-3: look-ahead with nested repeats runs in `re`, and is interrupted there."""
    lines = ["found b", "a" * 60 + "c"]
    with pytest.raises(errors.ScanTimeout, match="simpler pattern") as caught:
        scan("\n".join(lines) if source == "text" else lines, "(?:a+)+(?=b)|found(?= b)", seconds=1.0)
    assert [match.text for match in caught.value.matches] == ["found b"]
    assert caught.value.next_line == 1


@pytest.mark.parametrize("invert", [False, True])
def test_a_search_that_finds_nothing_ends_in_time(invert: bool) -> None:
    """RE2 and the search for literals cannot be interrupted: the time is looked at behind each block."""
    with pytest.raises(errors.ScanTimeout):
        scan("an error\n" * 10, "error" if invert else "warning", seconds=1e-9, invert=invert)


def test_outside_the_main_thread_a_backtracking_pattern_is_refused_at_once() -> None:
    """Nothing could interrupt it there."""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            scan("a" * 60 + "c", "(?:a+)+(?=b)", seconds=30)
        except errors.ScanTimeout as late:
            caught.append(late)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_a_timer_that_was_running_goes_on_after_a_search() -> None:
    """The kernel's own alarm is put back, with the time that is left."""
    fired: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _: fired.append(number))
    before = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        scan("foo bar", "(?<=foo )b.*r")
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        signal.raise_signal(signal.SIGALRM)
        assert fired == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_a_full_page_is_returned_even_if_the_time_runs_out_while_looking_for_more() -> None:
    """Whether there are more is then open: not truncated, not exact."""
    text = "hit (?=\n" + "a" * 60 + "c\n"
    found = scan(text, r"hit (?=\(\?)|(?:a+)+(?=b)", max_matches=1, seconds=1.0)
    assert (len(found.matches), found.truncated, found.exact) == (1, False, False)


def test_a_list_is_searched_item_by_item() -> None:
    """Items that hold newlines are not split; what is no string is refused."""
    found = scan(["one\ntwo", "three"], r"one\ntwo")
    assert [match.line for match in found.matches] == [0]
    with pytest.raises(errors.NotSearchable, match="item 1 is a int"):
        scan(["x", 5], "x")  # type: ignore[list-item]
    for wrong in (5, b"bytes", None, {"a": 1}):
        with pytest.raises(errors.NotSearchable, match="use a context, a string or a list"):
            scan(wrong, "x")  # type: ignore[arg-type]


def test_a_string_with_lone_surrogates_can_be_searched() -> None:
    """Kernel variables may hold them; they never reach an answer."""
    found = scan("ok\nbad \ud800 line", "bad")
    assert [match.line for match in found.matches] == [1]
    found.matches[0].text.encode()


@pytest.mark.parametrize(
    "arguments",
    [{"max_matches": 0}, {"context_lines": -1}, {"start_line": -1}, {"line_chars": 0}, {"seconds": 0}],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int]) -> None:
    """With a message that says where they start."""
    with pytest.raises(errors.BadRange):
        scan("text", "x", **arguments)


@pytest.mark.parametrize(
    "pattern", ["error", "time(d )?out|refused", r"\d+ ms", r"\berror\b", "[a-f0-9]{8}", "^x.*y$", "(a+)+$"]
)
def test_usual_patterns_on_ascii_text_need_no_confirmation(pattern: str) -> None:
    """RE2 alone decides: linear time, in any thread."""
    assert plan_for(pattern, True, False).exact


def test_case_folding_is_that_of_python_for_every_character() -> None:
    """The set emitted for a literal is what `re` matches, over all characters, for some of each script."""
    everything = charsets._everything()
    odd = "\xb5\xdf\xe5\u0130\u0131\u017f\u0345\u03c3\u03c2\u1e9e"
    odd += "\u01c4\u2126\u212a\ufb05\ufb06\U00010400\U0001e900\u0414"
    for char in "skiKAz" + odd:
        ranges = charsets.equal_ignoring_case(ord(char), re.IGNORECASE, False)
        found = "".join(chr(code) for first, last in ranges for code in range(first, last + 1))
        assert found == "".join(re.findall(re.escape(char), everything, re.IGNORECASE))
    assert len(everything) == 0x110000 - 2048


def test_searching_leaves_other_threads_running() -> None:
    """RE2 works without the interpreter lock: a counter in another thread advances meanwhile."""
    context = Text.from_bytes(b"no at sign here, only words and more words\n" * 400_000)
    counted, stop = [0], threading.Event()

    def spin() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=spin)
    thread.start()
    advanced = 0
    try:
        for _ in range(50):  # one search may be over before a busy machine has let the other thread run
            before = counted[0]
            found = scan(context, "[a-z]+@[a-z]+", seconds=50)
            assert (found.total, found.exact) == (0, True)
            if advanced := counted[0] - before:
                break
    finally:
        stop.set()
        thread.join()
    assert advanced > 0


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_python_warnings_about_a_pattern_do_not_stop_a_search() -> None:
    """A possible nested set is still a pattern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scan("[a", "[[a]").total == 1
