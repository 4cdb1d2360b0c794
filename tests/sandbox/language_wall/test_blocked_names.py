"""The builtins that a policy blocks (K-21)."""

import pytest

from rlm_sandbox.errors import CellError, PolicyViolation
from rlm_sandbox.language_wall.names import REFUSED_WHEN_CALLED
from rlm_sandbox.policy import SEED_BLOCKED_NAMES

USES = {
    "eval": "eval('1')",
    "exec": "exec('x = 1')",
    "compile": "compile('1', 'f', 'eval')",
    "input": "name = input('who? ')",
    "globals": "globals()['x'] = 1",
    "locals": "print(locals())",
}


@pytest.mark.parametrize("name", SEED_BLOCKED_NAMES)
def test_a_blocked_builtin_is_refused_with_reason_and_way_out(session, name):
    """K-21: the refusal names the line, the name, the policy and what to write instead."""
    refusal = session.refusal(f"x = 1\nif x:\n    {USES[name]}\n")
    assert isinstance(refusal, PolicyViolation)
    assert isinstance(refusal, SyntaxError)
    assert isinstance(refusal, CellError)
    assert refusal.lineno == 3
    assert refusal.offset
    assert refusal.text == f"    {USES[name]}"
    assert refusal.filename == "<cell>"
    assert f"'{name}' is not available in this session (policy field language.blocked_names)" in refusal.reason
    assert len(refusal.instead) > 20
    assert refusal.instead in str(refusal)


@pytest.mark.parametrize("name", sorted({*SEED_BLOCKED_NAMES} - REFUSED_WHEN_CALLED))
def test_mentioning_a_blocked_builtin_is_refused_too(session, name):
    """K-21: also as a value, in a function, as a decorator, as a default."""
    for source in (
        f"f = {name}",
        f"def f():\n    return {name}",
        f"@{name}\ndef f(): pass",
        f"def f(x={name}): pass",
        f"[{name} for _ in 'a']",
        f"class A:\n    x = {name}",
        f"lambda: {name}",
    ):
        assert name in session.refusal(source).reason


@pytest.mark.parametrize("name", sorted({*SEED_BLOCKED_NAMES} - REFUSED_WHEN_CALLED))
def test_no_other_way_leads_to_a_blocked_builtin(session, name):
    """K-21: it is not among the builtins at all, whatever the compiler lets through."""
    assert name not in session.wall.builtins
    code = compile(name, "<plain>", "eval")
    session.wall.prepare(session.namespace)
    with pytest.raises(NameError):
        eval(code, session.namespace)


def test_a_program_may_mention_input_and_is_refused_where_it_calls_it(session):
    """Many programs have a function that asks, which nobody calls here; to others the input has ended."""
    session.run("""
        def main(ask=input): return ask("who? ")
        later = lambda: input()
        names = (input() for _ in "ab")
    """)
    for call in ("main()", "later()", "next(names)", "list(map(input, 'a'))"):
        with pytest.raises(EOFError, match=r"language.blocked_names.*Nobody can answer"):
            session.run(call)
    for source in ("x = input()", "[input() for _ in 'a']", "class A: x = input()", "if 1:\n    print(input())"):
        assert "'input' is not available" in session.refusal(source).reason
    assert session.wall.builtins["input"] is not input


def test_a_session_that_may_ask_is_given_the_real_thing(make_session, monkeypatch):
    """Where the policy does not block it."""
    monkeypatch.setattr("builtins.input", lambda prompt: prompt + "Ada")
    assert make_session(blocked_names=()).value("result = input('who? ')") == "who? Ada"


def test_a_users_own_variable_may_have_the_name(session):
    """A parameter or variable called ``input`` is the user's, in later cells too."""
    session.run("""
        def f(input, *, eval=2): return input + eval
        input = f(1)
        total = input + sum(input for input in [1, 2])
        class A:
            compile = 3
            other = compile
    """)
    assert session.value("result = (input, total)") == (3, 6)
    session.run("def g():\n    global locals\n    locals = 5\ng()")
    assert session.value("result = locals") == 5


def test_every_refused_line_is_named(session):
    """The first refusal is explained; the lines of the others are listed."""
    refusal = session.refusal("eval('1')\nx = 2\nexec('3')\n().__class__.__subclasses__()")
    assert refusal.lineno == 1
    assert "also refused: line 3, 4" in refusal.reason


def test_nothing_of_a_refused_cell_runs(session):
    """A cell is compiled whole before its first statement."""
    with pytest.raises(PolicyViolation):
        session.run("marker = 1\neval('2')")
    assert "marker" not in session.namespace


def test_a_policy_may_block_other_names_and_fewer(make_session):
    """The list is the policy's."""
    strict = make_session(blocked_names=("open", "breakpoint"))
    assert "load the text as a context" in strict.refusal("open('x')").instead.lower()
    assert strict.value("result = eval('1 + 1')") == 2
    assert "'print'" in make_session(blocked_names=("print",)).refusal("print(1)").reason
