# %%
import re
from typing import NamedTuple, Iterator

class Token(NamedTuple):
    kind: str
    value: str
    pos: int

SPEC = [("NUM", r"\d+(?:\.\d+)?"), ("NAME", r"[a-z_]\w*"), ("OP", r"\*\*|[-+*/%()=,]"), ("WS", r"\s+"), ("BAD", r".")]
MASTER = re.compile("|".join(f"(?P<{k}>{p})" for k, p in SPEC))

def lex(src: str) -> Iterator[Token]:
    for m in MASTER.finditer(src):
        kind = m.lastgroup
        if kind == "WS":
            continue
        if kind == "BAD":
            raise SyntaxError(f"unexpected {m.group()!r} at {m.start()}")
        yield Token(kind, m.group(), m.start())
    yield Token("END", "", len(src))

for t in lex("x = 3.5 * (y + 2) ** 2"):
    print(t)
# %%
class Parser:
    """Pratt parser, good enough for arithmetic"""
    PREC = {"=": 1, "+": 10, "-": 10, "*": 20, "/": 20, "%": 20, "**": 30}

    def __init__(self, src):
        self.toks = list(lex(src))
        self.i = 0

    @property
    def cur(self):
        return self.toks[self.i]

    def advance(self):
        t = self.cur
        self.i += 1
        return t

    def expr(self, rbp=0):
        left = self.nud(self.advance())
        while self.cur.kind == "OP" and self.PREC.get(self.cur.value, 0) > rbp:
            left = self.led(left, self.advance())
        return left

    def nud(self, t):
        if t.kind == "NUM":
            return ("num", float(t.value))
        if t.kind == "NAME":
            if self.cur.value == "(":
                self.advance()
                args = []
                while self.cur.value != ")":
                    args.append(self.expr(2))
                    if self.cur.value == ",":
                        self.advance()
                self.advance()
                return ("call", t.value, args)
            return ("var", t.value)
        if t.value == "-":
            return ("neg", self.expr(25))
        if t.value == "(":
            e = self.expr()
            if self.cur.value != ")":
                raise SyntaxError("missing )")
            self.advance()
            return e
        raise SyntaxError(f"bad token {t.value!r}")

    def led(self, left, t):
        p = self.PREC[t.value]
        return (t.value, left, self.expr(p - 1 if t.value in ("**", "=") else p))

print(Parser("1 + 2 * 3 ** 2 ** 0.5 - -x").expr())
# %%
import math
import operator as op
OPS = {"+": op.add, "-": op.sub, "*": op.mul, "/": op.truediv, "%": op.mod, "**": op.pow}
FUNCS = {"sqrt": math.sqrt, "max": max, "min": min, "hyp": math.hypot}

def run(node, env):
    match node:
        case ("num", v):
            return v
        case ("var", name):
            try:
                return env[name]
            except KeyError:
                raise NameError(f"undefined: {name}") from None
        case ("neg", x):
            return -run(x, env)
        case ("call", f, args):
            return FUNCS[f](*(run(a, env) for a in args))
        case ("=", ("var", name), rhs):
            env[name] = run(rhs, env)
            return env[name]
        case (o, l, r) if o in OPS:
            return OPS[o](run(l, env), run(r, env))
        case _:
            raise TypeError(f"cannot run {node}")

env = {}
for line in ["x = 3", "y = x * 2 + 1", "hyp(3, 4) * max(x, y, 5)", "z = w = 2 ** 3 ** 2", "z % 7"]:
    print(f"{line:30} -> {run(Parser(line).expr(), env):g}")
print(env)
# %%
for bad in ["1 +", "(2", "3 $ 4", "foo + 1", "1 / 0", "3 = 4"]:
    try:
        print(run(Parser(bad).expr(), env))
    except Exception as e:
        print(f"{bad!r:12} {type(e).__name__}: {e}")
# %%
run(Parser("nosuch(3)").expr(), env)
