# %%
import numpy as np
np.set_printoptions(precision=4, suppress=True)
A = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
b = np.array([1.0, 2, 3])
x = np.linalg.solve(A, b)
print(x, np.allclose(A @ x, b))
w, V = np.linalg.eigh(A)
print(w, np.linalg.det(A).round(6), np.linalg.matrix_rank(A))
np.abs(V.T @ V - np.eye(3)).max() < 1e-12
# %%
def jacobi(A, b, tol=1e-8, itmax=200):
    x = np.zeros_like(b)
    D = np.diag(A)
    R = A - np.diagflat(D)
    for k in range(itmax):
        new = (b - R @ x) / D
        if np.abs(new - x).max() < tol:
            return new, k
        x = new
    raise RuntimeError("no convergence")
print(jacobi(A, b))
try:
    jacobi(np.array([[1.0, 5], [7, 1]]), np.array([1.0, 1]), itmax=10)
except RuntimeError as e:
    print(e)
# %%
t = np.linspace(0, 1, 11)
y = 2 * t**2 - t + 0.5
coef = np.polyfit(t, y, 2)
print(coef.round(6), np.polyval(coef, 2.0).round(6))
X = np.c_[np.ones_like(t), t, t**2]
beta, res, rank, sv = np.linalg.lstsq(X, y, rcond=None)
print(beta.round(6), rank)
U, s, Vt = np.linalg.svd(X, full_matrices=False)
print(np.allclose(U * s @ Vt, X), s.shape)
# %%
np.linalg.inv(np.array([[1.0, 2], [2, 4]]))
