"""A small assembler for seccomp filters: blocks of classic BPF that always end in a verdict.

A filter sees the call's number, the machine and the six arguments as numbers; it cannot follow pointers. A block is a
tuple of instructions in which control flows forward only and every path ends in `verdict`, so blocks can be
concatenated without labels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from rlm_sandbox.os_wall.syscalls import ARCHITECTURES

# Offsets in the kernel's struct seccomp_data (both machines are little-endian: the low half comes first).
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# Operation codes: load a word, jumps that compare the accumulator with a constant, mask, return.
LOAD, AND, RETURN, JUMP = 0x20, 0x54, 0x06, 0x05
IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x15, 0x35, 0x45

AUDIT_ARCHITECTURE = dict(zip(ARCHITECTURES, (0xC000003E, 0xC00000B7), strict=True))
"""The kernel's codes for the machines; a 32-bit program on a 64-bit kernel shows another one."""

KILL_PROCESS = 0x80000000
ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
_ERRNO = 0x00050000

INSTRUCTION_BYTES = 8
MAX_INSTRUCTIONS = 4096
"""The kernel's limit on one filter."""


class Instruction(NamedTuple):
    """One BPF instruction: operation, jump distance if true, if false, constant."""

    code: int
    if_true: int
    if_false: int
    constant: int

    def pack(self) -> bytes:
        """Return the instruction as the kernel's struct sock_filter."""
        return struct.pack("<HBBI", *self)


Block = tuple[Instruction, ...]


def verdict(action: int) -> Block:
    """End with an action: ALLOW, NOTIFY, KILL_PROCESS or `errno_action`."""
    return (Instruction(RETURN, 0, 0, action),)


def errno_action(number: int) -> int:
    """Return the action that fails the call with ``number``; with 0 the call reports success and does nothing."""
    return _ERRNO | number


def when(argument: int, test: int, value: int, then: Block, otherwise: Block) -> Block:
    """Compare the low half of an argument (0 to 5) with a constant: IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT."""
    return (_load_argument(argument), *_branch(test, value, then, otherwise))


def when_masked(argument: int, mask: int, value: int, then: Block, otherwise: Block) -> Block:
    """Compare the bits of an argument that are in ``mask`` with a constant."""
    masked = Instruction(AND, 0, 0, mask & 0xFFFFFFFF)
    return (_load_argument(argument), masked, *_branch(IF_EQUAL, value, then, otherwise))


def one_of(argument: int, values: tuple[int, ...], then: Block, otherwise: Block) -> Block:
    """Take ``then`` when the argument is one of ``values``."""
    for value in values:
        otherwise = when(argument, IF_EQUAL, value, then, otherwise)
    return otherwise


def _load_argument(index: int) -> Instruction:
    return Instruction(LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _branch(test: int, value: int, then: Block, otherwise: Block) -> Block:
    """Branch over any distance: a conditional jump reaches 255 instructions only, a plain one any number."""
    return (
        Instruction(test, 1, 0, value & 0xFFFFFFFF),
        Instruction(JUMP, 0, 0, len(then)),
        *then,
        *otherwise,
    )


def assemble(machine: str, rules: Mapping[int, Block], default: Block, newest: int, newer: Block) -> Block:
    """Return a whole filter: a block for each call number, ``default`` for others, ``newer`` above ``newest``.

    The numbers of the x32 ABI are all above ``newest``; calls of another machine's ABI kill the process.
    """
    starts = {0: default, newest + 1: newer}
    for number in sorted(rules):
        starts[number] = rules[number]
        starts.setdefault(number + 1, default)
    ranges = _merged(sorted(starts.items()))
    unknown_machine = verdict(KILL_PROCESS)
    calls = (Instruction(LOAD, 0, 0, _NUMBER), *_search(ranges))
    filter_ = (
        Instruction(LOAD, 0, 0, _ARCHITECTURE),
        *_branch(IF_EQUAL, AUDIT_ARCHITECTURE[machine], calls, unknown_machine),
    )
    if len(filter_) > MAX_INSTRUCTIONS:
        raise ValueError(f"the filter has {len(filter_)} instructions, the kernel takes {MAX_INSTRUCTIONS}")
    return filter_


def _merged(starts: list[tuple[int, Block]]) -> list[tuple[int, Block]]:
    """Drop the starts at which nothing changes."""
    kept = starts[:1]
    for start, block in starts[1:]:
        if block != kept[-1][1]:
            kept.append((start, block))
    return kept


def _search(ranges: list[tuple[int, Block]]) -> Block:
    """Return a binary search over the call number, which is in the accumulator: some eight comparisons."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    return _branch(IF_AT_LEAST, ranges[middle][0], _search(ranges[middle:]), _search(ranges[:middle]))
