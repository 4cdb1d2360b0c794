"""The checker of pickles in C against the same rules in Python, on pickles that were changed at random."""

import os
import pickle
import random

from pickle_rules import is_sound

from rlm_kernel.worker.snapshots import _checker, makers

ROUNDS = int(os.environ.get("RLM_FUZZ_ROUNDS", "4000"))
OPCODES = b"(.0125NRabceuqstXCKMJ])}\x81\x82\x85\x86\x87\x8c\x8f\x90\x91\x93\x94\x95\x96\x97\x98h\x80j"


class Made:
    """A call of a maker."""

    def __init__(self, name: str, *given: object) -> None:
        self.call = makers.MAKERS[name], given

    def __reduce__(self):
        return self.call


def sound() -> bytes:
    """Pickles with everything that an image has."""
    shared = [1, 2.5, "text", b"bytes", {3}, frozenset([4]), (5, (6,)), 2**100, None, True, bytearray(b"x")]
    value = {"a": shared, "b": shared, "c": Made("kind", "deque", (None,)), "d": [Made("cls", 0)] * 3}
    value["self"] = value
    return b"".join(pickle.dumps(stage, 5) for stage in (value, [("cls", 0, ({}, None))], None))


def verdicts(data: bytes, buffers: int) -> tuple[bool, bool]:
    found = _checker.check(data, makers.NAMES, makers.HOME, buffers) < 0
    return found, is_sound(data, makers.NAMES, makers.HOME, buffers)


def test_both_agree_on_every_changed_pickle() -> None:
    """`make fuzz-snapshots` goes through many more. Some changes leave sound pickles of other values."""
    good, chance, passed = sound(), random.Random(ROUNDS), 0
    assert verdicts(good, 0) == (True, True)
    for _ in range(ROUNDS):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            how = chance.randrange(4)
            if how == 0:
                data[at] = chance.randrange(256)
            elif how == 1:
                del data[at : at + chance.randint(1, 4)]
            elif how == 2:
                data[at:at] = bytes(chance.choice(OPCODES) for _ in range(chance.randint(1, 3)))
            else:
                data[at] = chance.choice(OPCODES)
        in_c, in_python = verdicts(bytes(data), chance.randint(0, 2))
        assert in_c == in_python, bytes(data)
        passed += in_c
    assert 0 < passed < ROUNDS // 4


def test_every_beginning_of_a_pickle_is_judged_alike() -> None:
    """Only a whole one is sound: the first of several, for one."""
    good = sound()
    found = [verdicts(good[:end], 0) for end in range(len(good) + 1)]
    assert all(one == other for one, other in found)
    assert [end for end, (one, _) in enumerate(found) if one][-1] == len(good)
    assert sum(one for one, _ in found) < 10  # after each pickle, and where one has begun but made nothing
