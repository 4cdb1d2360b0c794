# %%
import numpy as np
from scipy import stats
rng = np.random.default_rng(12)
control = rng.normal(100, 15, 80)
treated = rng.normal(106, 15, 75)
for name, x in (("control", control), ("treated", treated)):
    d = stats.describe(x)
    print(f"{name:8} n={d.nobs} mean={d.mean:.2f} var={d.variance:.1f} skew={d.skewness:.2f}")
# %%
t = stats.ttest_ind(treated, control, equal_var=False)
u = stats.mannwhitneyu(treated, control)
print(f"t={t.statistic:.3f} p={t.pvalue:.4f}; U={u.statistic:.0f} p={u.pvalue:.4f}")
def cohens_d(a, b):
    s = np.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2))
    return (a.mean() - b.mean()) / s
print(round(cohens_d(treated, control), 3))
print(stats.shapiro(control).pvalue > 0.05, stats.levene(control, treated).pvalue > 0.05)
# %%
boot = rng.choice(treated, (2000, treated.size)).mean(axis=1) - rng.choice(control, (2000, control.size)).mean(axis=1)
print("95% CI", np.percentile(boot, [2.5, 97.5]).round(2))
obs = np.array([[30, 10], [20, 25]])
chi2, p, dof, exp = stats.chi2_contingency(obs)
print(f"chi2={chi2:.3f} p={p:.4f} dof={dof}")
print(exp.round(1))
# %%
x = np.arange(20)
y = 3 * x + 5 + rng.normal(0, 4, 20)
fit = stats.linregress(x, y)
print(f"slope {fit.slope:.3f} ± {fit.stderr:.3f}, r² {fit.rvalue**2:.4f}")
print(stats.spearmanr(x, y).statistic.round(3), stats.kendalltau(x, y).statistic.round(3))
print(stats.norm.ppf([0.025, 0.975]).round(3), stats.binom(10, 0.3).pmf(range(4)).round(4), stats.poisson.sf(5, 3).round(5))
