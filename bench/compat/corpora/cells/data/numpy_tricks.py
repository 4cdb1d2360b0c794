# %%
import numpy as np
a = np.arange(24).reshape(2, 3, 4)
print(a[..., -1], a[:, ::2].shape, a.transpose(2, 0, 1).shape, a.sum(axis=(0, 2)))
print(a[a % 5 == 0], a[[0, 1], [2, 0], [1, 3]], np.swapaxes(a, 0, 2)[3, 1])
a[0, a[0] > 5] *= -1
a[0]
# %%
x = np.array([3, 1, 2, 3, 0])
order = np.argsort(x, kind="stable")
print(order, x[order], np.searchsorted(x[order], [0, 2, 5]), np.unique(x, return_inverse=True)[1])
print(np.where(x > 1, x, -1), np.select([x < 1, x < 3], ["low", "mid"], "high"), np.clip(x, 1, 2))
print(np.add.outer(x, x)[1], np.maximum.accumulate(x), np.diff(x), np.ediff1d(x, to_begin=0), np.roll(x, 2))
# %%
rec = np.array([("ann", 31, 1.62), ("bob", 25, 1.8)], dtype=[("name", "U10"), ("age", "i4"), ("h", "f8")])
print(rec["name"], rec[rec["age"] > 30]["h"], np.sort(rec, order="age")["name"], rec.dtype.names)
dist = np.sqrt(((x[:, None] - x[None, :]) ** 2).astype(float))
print(dist[0], np.tril(dist).sum(), np.isnan(np.array([1, np.nan])).any())
print(np.array2string(np.linspace(0, 1, 5), precision=2, separator="|"), np.datetime64("2024-02-28") + np.arange(3))
# %%
with np.errstate(divide="ignore", invalid="ignore"):
    r = np.array([1.0, 0, -1]) / 0
print(r, np.nan_to_num(r, nan=0, posinf=9, neginf=-9))
for bad in (lambda: np.zeros((2, 3)) @ np.zeros((2, 3)), lambda: x[10], lambda: x.reshape(2, 3), lambda: np.concatenate([x, a])):
    try:
        bad()
    except Exception as e:
        print(type(e).__name__, str(e)[:60])
int8 = np.array([100, 27], np.int8)
print((int8 + np.int8(50)).tolist(), np.iinfo(np.int8).max, np.finfo(float).eps, np.result_type(np.int8, np.uint8))
# %%
f = np.vectorize(lambda n: n // 2 if n % 2 == 0 else 3 * n + 1)
v = np.arange(1, 8)
for _ in range(3):
    v = f(v)
print(v)
buf = np.frombuffer(b"\x01\x02\x03\x04", dtype=">u2")
print(buf, buf.astype("<u2").tobytes(), np.packbits([1, 0, 1]), np.unpackbits(np.uint8([5])))
np.meshgrid([1, 2], [3, 4])[0].tolist(), np.ravel_multi_index((1, 2), (3, 4)), np.broadcast_shapes((3, 1), (1, 4))
