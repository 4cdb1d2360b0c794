# %%
import numpy as np
from scipy import optimize, interpolate, integrate, signal, spatial
t = np.linspace(0, 4, 30)
rng = np.random.default_rng(8)
obs = 2.5 * np.exp(-1.3 * t) + 0.5 + rng.normal(0, 0.02, t.size)
def model(t, a, k, c):
    return a * np.exp(-k * t) + c
popt, pcov = optimize.curve_fit(model, t, obs, p0=(1, 1, 1))
print("params", popt.round(2), "err", np.sqrt(np.diag(pcov)).round(2))
# %%
r = optimize.minimize(lambda p: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2, x0=[-1, 2], method="Nelder-Mead")
print(r.success, r.x.round(3))
print(round(optimize.brentq(lambda x: x**3 - 2 * x - 5, 2, 3), 8))
lp = optimize.linprog([-3, -5], A_ub=[[1, 0], [0, 2], [3, 2]], b_ub=[4, 12, 18])
print(lp.x.round(4), round(lp.fun, 4))
optimize.brentq(lambda x: x * x + 1, 0, 1)
# %%
val, err = integrate.quad(lambda x: np.exp(-x * x), -np.inf, np.inf)
print(f"{val:.10f} {np.sqrt(np.pi):.10f} {err < 1e-6}")
sol = integrate.solve_ivp(lambda t, y: [y[1], -y[0]], (0, np.pi), [1, 0], rtol=1e-8)
print(sol.y[:, -1].round(4), integrate.trapezoid([1, 2, 3]), integrate.simpson([0, 1, 4, 9, 16]))
cs = interpolate.CubicSpline([0, 1, 2, 3], [0, 1, 8, 27])
print(cs([0.5, 1.5]).round(4), cs(1.5, 1).round(4))
# %%
x = np.sin(2 * np.pi * 5 * np.arange(100) / 100) + 0.3 * np.sin(2 * np.pi * 12 * np.arange(100) / 100)
peaks, _ = signal.find_peaks(x, height=0.8)
spec = np.abs(np.fft.rfft(x))
print(peaks, np.argsort(spec)[-2:][::-1], spec.max().round(3))
tree = spatial.cKDTree([[0, 0], [1, 1], [3, 3]])
print(tree.query([0.9, 0.8]), spatial.distance.pdist([[0, 0], [3, 4], [6, 8]]))
hull = spatial.ConvexHull([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1]])
print(sorted(hull.vertices.tolist()), hull.volume)
