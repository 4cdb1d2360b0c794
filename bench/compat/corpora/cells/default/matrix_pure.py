# %%
class Matrix:
    def __init__(self, rows):
        self.rows = [list(r) for r in rows]
        if len({len(r) for r in self.rows}) > 1:
            raise ValueError("ragged")
    @classmethod
    def identity(cls, n):
        return cls([[int(i == j) for j in range(n)] for i in range(n)])
    @property
    def shape(self): return len(self.rows), len(self.rows[0])
    @property
    def T(self): return Matrix(zip(*self.rows))
    def __matmul__(self, o):
        if self.shape[1] != o.shape[0]:
            raise ValueError(f"shapes {self.shape} and {o.shape} do not fit")
        cols = list(zip(*o.rows))
        return Matrix([[sum(map(int.__mul__, r, c)) if all(type(x) is int for x in (*r, *c)) else sum(a * b for a, b in zip(r, c)) for c in cols] for r in self.rows])
    def __pow__(self, n):
        out, base = Matrix.identity(len(self.rows)), self
        while n:
            if n & 1:
                out = out @ base
            base, n = base @ base, n >> 1
        return out
    def __eq__(self, o): return self.rows == o.rows
    def __getitem__(self, ij): return self.rows[ij[0]][ij[1]]
    def __repr__(self): return "\n".join(" ".join(f"{str(x):>5}" for x in r) for r in self.rows)
fib = Matrix([[1, 1], [1, 0]])
print(fib ** 10)
print((fib ** 90)[0, 1])
Matrix([[1, 2, 3], [4, 5, 6]]).T
# %%
from fractions import Fraction
def solve(A, b):
    n = len(A)
    M = [[Fraction(x) for x in row] + [Fraction(y)] for row, y in zip(A, b)]
    for c in range(n):
        p = next((r for r in range(c, n) if M[r][c]), None)
        if p is None:
            raise ArithmeticError("singular")
        M[c], M[p] = M[p], M[c]
        M[c] = [x / M[c][c] for x in M[c]]
        for r in range(n):
            if r != c and M[r][c]:
                k = M[r][c]
                M[r] = [x - k * y for x, y in zip(M[r], M[c])]
    return [row[-1] for row in M]
print(*solve([[2, 1, -1], [-3, -1, 2], [-2, 1, 2]], [8, -11, -3]))
solve([[1, 2], [2, 4]], [1, 2])
# %%
def det(m):
    if len(m) == 1: return m[0][0]
    return sum((-1) ** j * m[0][j] * det([r[:j] + r[j+1:] for r in m[1:]]) for j in range(len(m)))
print(det([[2, 0, 1], [1, 3, 2], [1, 1, 1]]))
def spiral(m):
    while m:
        yield from m[0]
        m = list(zip(*m[1:]))[::-1]
print(*spiral([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]))
life = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}
def tick(cells):
    from collections import Counter
    around = Counter((x + dx, y + dy) for x, y in cells for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)
    return {p for p, n in around.items() if n == 3 or n == 2 and p in cells}
for _ in range(4):
    life = tick(life)
print(sorted(life))
for y in range(5):
    print("".join("#" if (x, y) in life else "." for x in range(5)))
# %%
Matrix([[1, 2]]) @ Matrix([[1, 2]])
