"""Coverage of intervals: the share of entries inside them, over draws of matrix and noise."""

import warnings

import numpy as np

import solvers
from tests.solvers.grid import NORM, ensemble, noise_level, signal

MEANS = ["100-sparse", "k^-1", "Laplace", "dense", "heavy"]


def mean_of(kind, d, seed):
    """Return a mean of norm 0.3; "heavy" is a table of users and items."""
    rng = np.random.default_rng(seed)
    if kind != "heavy":
        return signal(kind, d, rng)
    law = 1 / np.arange(1, d + 1)
    x = rng.permutation(rng.poisson(20_000 * law) / 20_000)
    return NORM * x / np.linalg.norm(x)


def decoders():
    """Return the unbiased decoders by name."""
    return {
        "amp": solvers.get("amp", debias=True),
        "lasso": solvers.get("working_set", debias=True, tol=1e-5),
        "linear": solvers.get("linear"),
        "median": solvers.get("median"),
    }


def coverage(names, kind, name, compression, draws, d=5000, level=0.95, shrink=1.0, epsilon=1.0):
    """Return for each decoder the share covered: of all entries, of the 100 largest, all at once.

    ``shrink`` multiplies the standard errors: the negative control.
    """
    noise = noise_level(epsilon)
    found = {each: [] for each in names}
    for seed in range(draws):
        x = mean_of(kind, d, seed)
        largest = np.argsort(-np.abs(x))[:100]
        A = ensemble(name, d, d // compression, seed)
        y = A.matvec(x) + noise * np.random.default_rng([5, seed]).standard_normal(A.shape[0])
        for each in names:
            if each == "median" and not hasattr(A, "row_estimates"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = decoders()[each].fit(A, y, noise_std=noise)
            std_err = shrink * np.asarray(fitted.std_err_)
            low, high = solvers.confidence_interval(fitted.coef_, std_err, level).T
            inside = (low <= x) & (x <= high)
            low, high = solvers.confidence_interval(
                fitted.coef_, std_err, level, simultaneous=True, n_measurements=A.shape[0]
            ).T
            found[each].append(
                [inside.mean(), inside[largest].mean(), np.all((low <= x) & (x <= high))]
            )
    return {each: np.mean(values, axis=0) for each, values in found.items() if values}
