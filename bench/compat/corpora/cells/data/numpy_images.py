# %%
import numpy as np
img = np.zeros((8, 10), dtype=np.uint8)
img[2:6, 3:8] = 200
img[3, 4] = 50
print(img)
print(img.shape, img.dtype, img.sum(), np.count_nonzero(img))
# %%
def convolve(a, k):
    kh, kw = k.shape
    p = np.pad(a.astype(float), ((kh // 2,) * 2, (kw // 2,) * 2), mode="edge")
    win = np.lib.stride_tricks.sliding_window_view(p, k.shape)
    return np.einsum("ijkl,kl->ij", win, k[::-1, ::-1])
sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])
edges = np.hypot(convolve(img, sobel), convolve(img, sobel.T))
print(edges.round().astype(int))
# %%
mask = edges > edges.mean()
print("\n".join("".join(".#"[int(v)] for v in row) for row in mask))
ys, xs = np.nonzero(mask)
print("bbox", int(ys.min()), int(ys.max()), int(xs.min()), int(xs.max()))
# %%
# labels of connected parts, own flood fill
def label(mask):
    out = np.zeros(mask.shape, int)
    cur = 0
    for seed in zip(*np.nonzero(mask)):
        if out[seed]:
            continue
        cur += 1
        stack = [seed]
        while stack:
            y, x = stack.pop()
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1] and mask[y, x] and not out[y, x]:
                out[y, x] = cur
                stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    return out, cur
lab, k = label(img == 200)
print(k, np.bincount(lab.ravel()))
try:
    img + np.ones((3, 3))
except ValueError as e:
    print(e)
np.unique(img, return_counts=True)
