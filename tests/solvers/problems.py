"""Small problems and independent referees, shared by the tests of the solvers."""

import numpy as np


def sparse_problem(m=120, d=400, s=8, noise=0.02, seed=0):
    """Return A (Gaussian, normalised), y = A x + noise, x and the noise level."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, d)) / np.sqrt(m)
    x = np.zeros(d)
    x[rng.choice(d, s, replace=False)] = rng.choice([-1, 1], s) * rng.uniform(0.5, 1.5, s)
    return A, A @ x + noise * rng.standard_normal(m), x, noise


def lasso_objective(A, y, x, alpha):
    """Evaluate the definition, in float64."""
    r = y - np.asarray(A, dtype=np.float64) @ x
    return 0.5 * np.mean(r**2) + alpha * np.sum(np.abs(x))


def lasso_gap(A, y, x, alpha, positive=False):
    """Evaluate primal minus dual at the residual shrunk until feasible: a slow, plain referee."""
    A = np.asarray(A, dtype=np.float64)
    m = len(y)
    r = y - A @ x
    c = A.T @ r
    worst = c.max() if positive else np.abs(c).max()
    shrink = 1.0 if worst <= m * alpha else m * alpha / worst
    u = shrink * r
    dual = (np.sum(y**2) - np.sum((y - u) ** 2)) / (2 * m)
    return lasso_objective(A, y, x, alpha) - dual
