# %%
try:
    import ujson_that_nobody_has as json
except ImportError:
    import json
    print("fast json not available, using", json.__name__)
try:
    import tomllib
    HAVE_TOML = True
except ImportError:
    HAVE_TOML = False
print(HAVE_TOML)
# %%
import argparse, logging, sys, io
def build_parser():
    p = argparse.ArgumentParser(prog="stats", description="numbers in, stats out")
    p.add_argument("numbers", nargs="+", type=float)
    p.add_argument("-o", "--op", choices=["sum", "mean", "max"], default="sum")
    p.add_argument("-v", "--verbose", action="count", default=0)
    return p
def main(argv=None):
    args = build_parser().parse_args(argv)
    if args.verbose:
        print("args:", args)
    ops = {"sum": sum, "mean": lambda xs: sum(xs) / len(xs), "max": max}
    print(ops[args.op](args.numbers))
    return 0
if __name__ == "__main__":
    main(["1", "2", "3.5"])
    main(["-vv", "--op", "mean", "4", "6"])
# %%
err = io.StringIO()
import contextlib
with contextlib.redirect_stderr(err):
    try:
        main(["--op", "median", "1"])
    except SystemExit as e:
        print("exit", e.code)
print(err.getvalue().splitlines()[0])
# %%
stream = io.StringIO()
log = logging.getLogger("agent.demo")
log.handlers.clear()
log.propagate = False
h = logging.StreamHandler(stream)
h.setFormatter(logging.Formatter("%(levelname)-7s %(name)s: %(message)s"))
log.addHandler(h)
log.setLevel(logging.INFO)
log.debug("hidden")
log.info("loaded %d rows", 3)
try:
    int("x")
except ValueError:
    log.warning("bad value", exc_info=False)
print(stream.getvalue(), end="")
