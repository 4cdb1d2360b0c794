"""eval, exec, compile, globals and locals where a policy does not block them: through the same compiler."""

import pytest


@pytest.fixture
def loose(make_session):
    """A session whose policy blocks no builtin."""
    return make_session(blocked_names=())


def test_evaluation_gives_the_same_results(loose):
    """Expressions, statements, given namespaces, functions defined by text."""
    assert loose.value("""
        x = 2
        exec("y = x + 1\\ndef f(n): return n * y")
        space = {"a": 5}
        exec("b = a + 1", space)
        def inside(p): return eval("p + x"), sorted(locals()), exec("p = 9"), p
        c = compile("x * 10", "<text>", "eval")
        result = (eval("x + y"), f(3), space, inside(1), eval(c), globals()["x"], "x" in globals(),
                  eval("k * 2", {"k": 4}), eval("m", {}, {"m": 7}), eval(b" 1+1 "))
    """) == (5, 9, {"a": 5, "b": 6}, (3, ["p"], None, 1), 20, 2, True, 8, 7, 2)


def test_globals_shows_variables_and_not_the_plumbing(loose):
    """``__builtins__`` cannot be read, replaced or deleted through it."""
    assert loose.value("""
        g = globals()
        g["made"] = 3
        out = []
        for action in (lambda: g["__builtins__"], lambda: g.__setitem__("__builtins__", {}),
                       lambda: g.pop("__builtins__"), lambda: g.update({"__builtins__": 1})):
            try: action(); out.append("open")
            except KeyError: out.append("held")
        class K(str):
            def __eq__(self, o): return o == "__builtins__"
            def __hash__(self): return hash("__builtins__")
        try: g[K("x")]; out.append("open")
        except KeyError: out.append("held")
        result = (made, out, "__builtins__" in list(g), getattr(g, "_namespace", "held"))
    """) == (3, ["held"] * 5, False, "held")


def test_evaluated_text_is_compiled_under_the_policy(loose):
    """What a cell may not contain, text may not either."""
    for text in (
        "().__class__.__subclasses__()",
        "print.__self__",
        "__builtins__",
        "(lambda: 0).__globals__",
    ):
        for call in (
            f"eval({text!r})",
            f"exec({text!r})",
            f"eval(compile({text!r}, 'f', 'eval'))",
            f"eval({text!r}, {{}})",
            f"exec('eval({text!r})', {{}}, {{}})",
        ):
            with pytest.raises((SyntaxError, AttributeError)):
                loose.run(call)


def test_given_builtins_are_ignored(loose):
    """A dict with ``__builtins__`` of the caller's own changes nothing."""
    assert loose.value("""
        space = {"__builtins__": {"len": lambda x: 99}}
        exec("n = len([1])", space)
        result = (space["n"], sorted(space))
    """) == (1, ["__builtins__", "n"])


def test_text_cannot_bind_a_parameter_that_was_checked_at_entry(loose):
    """On CPython 3.13 ``f_locals`` writes through to the function's variables."""
    assert (
        loose.value("""
        import threading
        class Own: _target = "own"
        def steal(self):
            self._target
            exec("self = threading.Thread(target=print)")
            return self._target
        result = steal(Own())
    """)
        == "own"
    )


def test_only_text_is_evaluated(loose):
    """No code objects, no trees, no other dicts."""
    for call in ("eval(len)", "exec(compile('1', 'f', 'exec', 1024))", "eval('1', type('D', (dict,), {})())"):
        with pytest.raises(TypeError):
            loose.run(call)
