# %%
from fractions import Fraction as F
from decimal import Decimal, getcontext, localcontext
import math
print(F(3, 4) + F("0.125"), F(0.1).limit_denominator(100), [str(F(n, 12)) for n in range(1, 7)])
print(0.1 + 0.2, Decimal("0.1") + Decimal("0.2"), math.fsum([0.1] * 10), math.isclose(0.3, 0.1 + 0.2))
with localcontext() as ctx:
    ctx.prec = 50
    print(Decimal(2).sqrt())
print(getcontext().prec, round(2.5), round(-3.5), round(1234.5678, -2), f"{Decimal('1234567.891'):,.1f}")
# %%
def egcd(a, b):
    if not b:
        return a, 1, 0
    g, x, y = egcd(b, a % b)
    return g, y, x - a // b * y
print(egcd(240, 46), pow(3, -1, 11), math.gcd(48, 36, 8), math.lcm(4, 6, 10), math.comb(52, 5))
def factor(n):
    out, p = {}, 2
    while p * p <= n:
        while n % p == 0:
            out[p] = out.get(p, 0) + 1
            n //= p
        p += 1
    if n > 1:
        out[n] = out.get(n, 0) + 1
    return out
for n in (360, 97, 2**20, 600851475143):
    print(n, " * ".join(f"{p}^{e}" if e > 1 else str(p) for p, e in factor(n).items()))
# %%
n = 0b1011_0110
print(n.bit_count(), n.bit_length(), f"{n:#010b} {n:x} {n:o} {~n & 0xff:08b}", n & -n, n >> 2, n ^ 0xF)
def subsets(xs):
    for mask in range(1 << len(xs)):
        yield [x for i, x in enumerate(xs) if mask >> i & 1]
print(list(subsets("abc")))
gray = [i ^ (i >> 1) for i in range(8)]
print([f"{g:03b}" for g in gray])
def popcount_table(bits):
    t = [0]
    for _ in range(bits):
        t += [x + 1 for x in t]
    return t
popcount_table(4)
# %%
def to_base(n, b, digits="0123456789abcdefghijklmnopqrstuvwxyz"):
    if n < 0: return "-" + to_base(-n, b)
    s = ""
    while True:
        n, r = divmod(n, b)
        s = digits[r] + s
        if not n: return s
print(to_base(255, 2), to_base(-255, 36), int(to_base(987654321, 7), 7), int("zz", 36))
def roman(n):
    for v, s in zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), "M CM D CD C XC L XL X IX V IV I".split()):
        while n >= v:
            n -= v
            yield s
print(*("".join(roman(x)) for x in (1994, 2024, 3999, 49)))
print(f"{1e10:.3e} {1/3:.2%} {-7//2} {-7%2} {7//-2} {math.trunc(-3.7)} {float('nan') != float('nan')} {1e308*10}")
