"""What is read out of a model's reply: code, and a final answer in each form that models were taught."""

import pytest

from rlm_client.rlm.replies import Final, final_of, has_open_block, repl_blocks, submitted


@pytest.mark.parametrize(
    ("reply", "blocks"),
    [
        ("look\n```repl\nprint(1)\n```\n", ["print(1)"]),
        ("```repl\na = 1\n```\nthen\n```repl\nif a:\n    b = 2\n```", ["a = 1", "if a:\n    b = 2"]),
        ("```python\nprint(1)\n```", []),
        ("```repl\nx = '''```'''\nprint(x)\n```", ["x = '''```'''\nprint(x)"]),
        ("```repl\n\n```", []),
        ("no code", []),
        ("```repl\nprint('cut", []),
    ],
)
def test_blocks_marked_repl_are_code(reply: str, blocks: list[str]) -> None:
    """Only whole blocks with that mark; a fence inside of a line ends none."""
    assert repl_blocks(reply) == blocks


def test_a_reply_that_was_cut_is_noticed() -> None:
    """Its last block has no end."""
    assert has_open_block("```repl\nprint(1)\n```\n```repl\nprint(")
    assert not has_open_block("```repl\nprint(1)\n```")


@pytest.mark.parametrize(
    ("reply", "final"),
    [
        ("FINAL(42)", Final(text="42")),
        ("so\n  FINAL(f(x) and (y))\nmore", Final(text="f(x) and (y)")),
        ("FINAL(two\nlines", Final(text="two\nlines")),
        ("FINAL_VAR(found)", Final(variable="found")),
        ("FINAL_VAR('found')", Final(variable="found")),
        ("I will write FINAL(x) later", None),
        ("```repl\nFINAL(1)\n```", None),
        ("nothing", None),
    ],
)
def test_a_final_answer_stands_at_the_start_of_a_line_outside_of_code(reply: str, final: Final | None) -> None:
    """The older forms of the protocol."""
    assert final_of(reply) == final


@pytest.mark.parametrize(
    ("shown", "content"),
    [
        (["content: 42", "ready: True"], "42"),
        (["content: a\nready: b", "ready: True"], "a\nready: b"),
        (["ready: True", "content: two\nlines"], "two\nlines"),
        (["content: x", "ready: True", "named: True"], "x"),
        (["content: 42", "ready: False"], None),
        (["content: ", "ready: True"], ""),
        (["content: ready: True", "ready: False"], None),
        (["content: x\nready: True\ncontent: y", "ready: False"], None),
        (["something else"], None),
        ([], None),
    ],
)
def test_an_answer_counts_when_it_is_ready(shown: list[str], content: str | None) -> None:
    """The dictionary `answer`, as its items are read."""
    assert submitted(shown) == content
