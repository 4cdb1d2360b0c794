"""Augmented assignment to names, items, slices and attributes."""

import pytest


def test_every_target_and_operator_works(same):
    """K-24: ``d[k] += 1`` and ``a.b += 1`` as in plain Python, each target evaluated once."""
    same("""
        class Box:
            def __init__(self): self.n = 1; self._p = [1]; self.query = 1; self.obj = 2
            def grow(self): self.n += 1; self._p += [2]; self.query *= 3; self.obj -= 1; return self
        calls = []
        def box(b=Box()): calls.append(1); return b
        d, l = {"a": 1}, [1, 2, 3, 4]
        d["a"] += 1; d.setdefault("b", 0); d["b"] -= 5
        l[0] *= 9; l[1:3] += [7]; l[-1] **= 2
        box().n += 5; box()._p += [3]; box().grow().n <<= 2
        x = 7; x //= 2; x |= 8; x ^= 1; x &= 13; x %= 5; x /= 2
        m = [[0] * 2 for _ in range(2)]
        for i in range(2): m[i][1 - i] += i + 1
        result = (d, l, box().n, box()._p, box().query, box().obj, len(calls), x, m)
    """)


def test_library_classes_and_modules_of_the_host_are_not_updated(session):
    """The object is checked for the store."""
    for source in (
        "import json; json.JSONEncoder.item_separator += 'x'",
        "import threading\nthreading.Thread().daemon_ = 1\nthreading.Thread()._target += 1",
        "def f(x): x.co_names += ()\nf((lambda: 0).__code__)",
    ):
        with pytest.raises(AttributeError):
            session.run(source)


def test_a_private_update_needs_both_reading_and_storing(session):
    """``foreign._x += evil`` would hand the library's value to ``evil.__radd__``."""
    session.run("""
        import threading
        got = []
        class Evil:
            def __radd__(self, other): got.append(other); return None
        def steal(thread): thread._target += Evil()
        try: steal(threading.Thread(target=print))
        except AttributeError: pass
    """)
    assert session.namespace["got"] == []
