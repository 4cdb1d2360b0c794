"""What a question asks for: its words by weight, without those that only hold a sentence together."""

from __future__ import annotations

import re

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.extraction.words import hash_of, parts_of, words_in

_FILLER = frozenset(
    """
    a about above across actually add added adding adds affect affected after again against all allow allows already
    also although always am an and another any anything are around as ask asks at avoid away be became because become
    been before behind being below between both bring brings broke broken bug bugs build builds built but by called
    can cannot change changed changes changing check clean cleanup code commit contain contains correct correctly cover
    covered covers could currently define defined defines defining depend depends describe describes did different do
    does doing don done down drop during each edit either else enable ensure etc even every everything exist existing
    exists explain few file files find first fix fixed fixes fixing follow following for found from further get gets
    give given gives go goes going good had handle handled handles handling happen has have having help here how
    however if implement implemented implements improve improved improvement improvements improves in inside instead
    into introduce is issue issues it its itself just keep kind know known less let like line lines list live lives
    located look looks made make makes making many may means might minor more most move moved much must need needed
    needs never new no non not now of off often on once one only onto or other others our out over own part perhaps
    place please possible prevent problem properly provide provides put rather really refactor refactoring related
    remove removed removes removing rename renamed replace rest revert rewrite right same see several shall should show
    shows simple simplify since small so some something sometimes somewhere sort still stop such support supported
    supports sure take takes tell than that the their them then there these they thing things this those through thus
    to together tool toward try two typo under unnecessary unneeded until unused up update updated updates upon us use
    used useful uses using very want wanted was way we well were what when where whether which while who whole whose
    why will with within without work working works would wrong yet you your
    """.split()
)
_NAME = re.compile(r"[A-Za-z_][\w]*")
_LONGEST_QUESTION = 2_000
_MOST_WORDS = 24
NAME, WORD, PART, VARIANT = 1.6, 1.0, 0.35, 0.6


@dataclass(frozen=True, slots=True)
class Sought:
    """A term to search for.

    Attributes:
        term: its hash.
        weight: how much it says, before its rarity is considered.
        word: the word of the question it stands for: several terms of one word count no more than that word.
    """

    term: int
    weight: float
    word: int


def terms_of(question: str) -> list[Sought]:
    """Return the terms for a question's words; each term once."""
    by_term: dict[int, Sought] = {}

    def seek(text: str, weight: float, word: int) -> None:
        term = hash_of(text)
        if term not in by_term or by_term[term].weight < weight:
            by_term[term] = Sought(term, weight, word)

    count = 0
    for written in dict.fromkeys(_written(question[:_LONGEST_QUESTION])):
        lower = written.lower()
        if lower in _FILLER or count >= _MOST_WORDS:
            continue
        parts = parts_of(written)
        compound = len(parts) > 1 or "_" in written
        seek(lower, NAME if compound or not written[1:].islower() else WORD, count)
        for part in parts if compound else ():
            if part not in _FILLER and len(part) > 2:
                seek(part, PART, count)
        for variant in () if compound else _variants(lower):
            seek(variant, VARIANT, count)
        count += 1
    return list(by_term.values())


def _written(question: str) -> list[str]:
    """Return the words as they are written: their case can mark them as names."""
    kept = [word for word in _NAME.findall(question) if len(word) > 2]
    known = {word.lower() for word in kept}
    return kept + [word for word in words_in(question) if word not in known and not word.isascii()]


def asks_for_tests(question: str) -> bool:
    """Return whether the question asks for tests."""
    return any(word.lower() in {"test", "tests", "tested", "testing"} for word in _NAME.findall(question))


def _variants(word: str) -> list[str]:
    """Return other English forms of a word."""
    if len(word) < 4 or not word.isalpha():
        return []
    if word.endswith("ies"):
        return [word[:-3] + "y"]
    for ending, minimum in (("ing", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= minimum:
            stem = word[: -len(ending)]
            doubled = [stem[:-1]] if stem[-1] == stem[-2] and stem[-1] not in "sl" else []
            return [*doubled, stem, stem + "e", stem + "s"]
    if word.endswith("s") and not word.endswith("ss"):
        return [word[:-1], *([word[:-2]] if word.endswith("es") else [])]
    return [word + "s", word + ("d" if word.endswith("e") else "ed"), word.removesuffix("e") + "ing"]
