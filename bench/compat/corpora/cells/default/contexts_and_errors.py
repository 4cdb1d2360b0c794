# %%
from contextlib import contextmanager, suppress, ExitStack, redirect_stdout, closing
import io
@contextmanager
def section(title):
    print(f"<{title}>")
    try:
        yield title.upper()
    except ZeroDivisionError as e:
        print("  caught", e)
    finally:
        print(f"</{title}>")
with section("one") as t:
    print(" ", t)
with section("two"):
    1 / 0
with suppress(KeyError, IndexError):
    [][3]
    print("never")
# %%
with ExitStack() as stack:
    names = [stack.enter_context(section(f"s{i}")) for i in range(3)]
    stack.callback(print, "bye", names)
buf = io.StringIO()
with redirect_stdout(buf):
    print("captured", end="")
    with section("inner"):
        pass
print(repr(buf.getvalue()))
# %%
class ConfigError(Exception):
    """raised on bad config"""
def load(text):
    try:
        k, v = text.split("=")
        return {k.strip(): int(v)}
    except ValueError as e:
        raise ConfigError(f"cannot read {text!r}") from e
for text in ("a = 1", "a = b", "nothing"):
    try:
        print(load(text))
    except ConfigError as e:
        print(e, "<-", type(e.__cause__).__name__, e.__cause__)
# %%
import traceback
def f(n):
    if n == 0:
        raise LookupError("bottom")
    return f(n - 1)
try:
    try:
        f(3)
    except LookupError:
        {}["missing"]
except KeyError as e:
    print([type(x).__name__ for x in (e, e.__context__)], e.__cause__)
    print(traceback.format_exception_only(e)[-1].strip())
    e.add_note("while demonstrating")
    print(e.__notes__)
def weird():
    for i in range(3):
        try:
            if i == 1:
                continue
            if i == 2:
                return "returned"
        finally:
            print("finally", i)
weird()
# %%
assert isinstance(load("z=5"), list), "load must give a list"
