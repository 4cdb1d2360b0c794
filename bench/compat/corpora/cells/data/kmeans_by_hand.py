# %%
import numpy as np
rng = np.random.default_rng(99)
centers = np.array([[0, 0], [6, 5], [0, 7.0]])
X = np.vstack([rng.normal(c, 0.8, (40, 2)) for c in centers])
y = np.repeat(np.arange(3), 40)
perm = rng.permutation(len(X))
X, y = X[perm], y[perm]
X.mean(axis=0).round(3), X.shape
# %%
def kmeans(X, k, seed=0, iters=50):
    g = np.random.default_rng(seed)
    C = [X[g.integers(len(X))]]
    while len(C) < k:  # ++ init
        d2 = np.min([((X - c) ** 2).sum(1) for c in C], axis=0)
        C.append(X[g.choice(len(X), p=d2 / d2.sum())])
    C = np.array(C)
    for it in range(iters):
        lab = ((X[:, None] - C[None]) ** 2).sum(-1).argmin(1)
        new = np.array([X[lab == j].mean(0) if (lab == j).any() else C[j] for j in range(k)])
        if np.allclose(new, C):
            break
        C = new
    return C, lab, ((X - C[lab]) ** 2).sum(), it
for k in range(1, 6):
    *_, inertia, it = kmeans(X, k)
    print(f"k={k} inertia={inertia:8.1f} iters={it}")
# %%
C, lab, *_ = kmeans(X, 3)
conf = np.zeros((3, 3), int)
np.add.at(conf, (y, lab), 1)
print(conf[:, conf.argmax(axis=1)])
print("purity", conf.max(axis=1).sum() / len(X))
print(C[np.lexsort((C[:, 1], C[:, 0].round()))].round(1))
# %%
# PCA, then nearest neighbour
Z = X - X.mean(0)
_, s, Vt = np.linalg.svd(Z, full_matrices=False)
print("explained", (s**2 / (s**2).sum()).round(3))
train, test = slice(0, 90), slice(90, None)
D = np.linalg.norm(X[test][:, None] - X[train][None], axis=2)
nn = np.argpartition(D, 5, axis=1)[:, :5]
pred = np.array([np.bincount(v, minlength=3).argmax() for v in y[train][nn]])
print("accuracy", (pred == y[test]).mean())
# %%
def sigmoid(t): return 1 / (1 + np.exp(-t))
target = (y == 1).astype(float)
A = np.c_[np.ones(len(X)), X]
wts = np.zeros(3)
losses = []
for epoch in range(300):
    p = sigmoid(A @ wts)
    losses.append(-(target * np.log(p + 1e-12) + (1 - target) * np.log(1 - p + 1e-12)).mean())
    wts -= 0.1 * A.T @ (p - target) / len(X)
print([round(l, 3) for l in losses[::75]], losses[-1] < losses[0])
wts.round(2)
