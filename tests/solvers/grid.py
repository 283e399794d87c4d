"""The accuracy grid: kinds of means, ensembles and noise levels of the one-shot problem."""

import numpy as np

from sparse_secagg import CountSketchEncoder, GaussianEncoder, HadamardEncoder

NORM, N_CLIENTS = 0.3, 1000
SIGNALS = ["20-sparse", "100-sparse", "300-sparse", "k^-2", "k^-1", "k^-0.7", "Laplace", "dense"]
ENSEMBLES = ["gaussian", "hadamard", "count_4", "count_8", "count_15"]


def noise_level(epsilon):
    """Noise of the mean sketch at zCDP level ε²/2 and clip 1.1."""
    return 1.1 / (N_CLIENTS * epsilon)


def signal(kind, d, rng):
    """Draw a mean of norm 0.3."""
    if kind.endswith("-sparse"):
        s = int(kind.split("-")[0])
        x = np.zeros(d)
        x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
    elif kind.startswith("k^"):
        x = rng.permutation(np.arange(1, d + 1) ** float(kind[2:])) * rng.choice([-1, 1], d)
    elif kind == "Laplace":
        x = rng.laplace(size=d)
    elif kind == "dense":
        x = rng.standard_normal(d)
    elif kind == "constant":
        x = np.ones(d)
    else:
        raise ValueError(kind)
    return NORM * x / np.linalg.norm(x)


def ensemble(kind, d, m, seed):
    """Draw a measurement operator (m, d)."""
    if kind == "gaussian":
        encoder = GaussianEncoder(n_components=m, random_state=seed)
    elif kind == "hadamard":
        encoder = HadamardEncoder(n_components=m, random_state=seed)
    else:
        encoder = CountSketchEncoder(
            n_components=m, n_rows=int(kind.split("_")[1]), random_state=seed
        )
    return encoder.fit_dimension(d).operator_


def draw(kind, A, noise_std, seed):
    """Return x and y = A x + noise."""
    rng = np.random.default_rng(seed)
    x = signal(kind, A.shape[1], rng)
    return x, A.matvec(x) + noise_std * rng.standard_normal(A.shape[0])


def relative_error(estimate, x):
    """Return ‖x̂ − x‖²/‖x‖²."""
    return float(np.sum((estimate - x) ** 2) / np.sum(x**2))
