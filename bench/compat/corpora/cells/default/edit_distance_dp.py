# %%
def lev(a, b):
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        cur = [i]
        for j, y in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (x != y)))
        prev = cur
    return prev[-1]
[(p, lev(*p)) for p in [("kitten", "sitting"), ("", "abc"), ("flaw", "lawn")]]
# %%
def lcs(a, b):
    T = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a)):
        for j in range(len(b)):
            T[i + 1][j + 1] = T[i][j] + 1 if a[i] == b[j] else max(T[i][j + 1], T[i + 1][j])
    out, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            out.append(a[i - 1]); i -= 1; j -= 1
        elif T[i - 1][j] >= T[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return "".join(reversed(out))
print(lcs("AGGTAB", "GXTXAYB"), lcs("pattern matching", "attack machine"))
# %%
from functools import cache
items = [("laptop", 3, 2000), ("guitar", 1, 1500), ("stereo", 4, 3000), ("phone", 1, 2000), ("tent", 2, 700)]
@cache
def best(i, cap):
    if i == len(items):
        return 0, ()
    name, w, v = items[i]
    skip = best(i + 1, cap)
    if w > cap:
        return skip
    val, names = best(i + 1, cap - w)
    return max(skip, (val + v, (name,) + names))
for cap in range(0, 9, 2):
    print(cap, best(0, cap))
# %%
import bisect
def lis(xs):
    tails, idx, parent = [], [], [-1] * len(xs)
    for i, x in enumerate(xs):
        k = bisect.bisect_left(tails, x)
        if k == len(tails):
            tails.append(x); idx.append(i)
        else:
            tails[k] = x; idx[k] = i
        parent[i] = idx[k - 1] if k else -1
    out, k = [], idx[-1]
    while k != -1:
        out.append(xs[k]); k = parent[k]
    return out[::-1]
seq = [10, 9, 2, 5, 3, 7, 101, 18, 20, 4, 21]
print(lis(seq))
grades = "FDCBA"
print([grades[bisect.bisect([60, 70, 80, 90], s)] for s in (33, 99, 77, 70, 89, 90, 100)])
# %%
matrix_dims = [30, 35, 15, 5, 10, 20, 25]
@cache
def chain(i, j):
    if i == j:
        return 0, f"A{i}"
    return min(
        (chain(i, k)[0] + chain(k + 1, j)[0] + matrix_dims[i - 1] * matrix_dims[k] * matrix_dims[j],
         f"({chain(i, k)[1]}{chain(k + 1, j)[1]})")
        for k in range(i, j)
    )
chain(1, 6)
