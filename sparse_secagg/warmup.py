"""Compile the kernels once, so that no first round has to wait for them.

Numba keeps what it has compiled on disk, next to the package or, where that is not writable, in the
user's cache (``NUMBA_CACHE_DIR`` names another place). A new version of the package, of numba or
another processor needs it again.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["warm_up"]


def warm_up() -> float:
    """Call every kernel for the types that rounds and decoders give it.

    Returns
    -------
    float
        Seconds spent compiling; close to 0 where everything was compiled before.
    """
    from solvers.compiling_kernels import notice

    notice.silence()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for work in _works():
            work()
    return notice.seconds


def _works() -> Iterator[Callable[[], Any]]:
    import solvers
    from sparse_secagg import GaussianEncoder, MaskedSecAgg, SparseSecAgg
    from sparse_secagg.mechanisms.sampling import discrete_gaussian
    from sparse_secagg.walsh_hadamard import fwht

    rng = np.random.default_rng(0)
    dense = 0.1 * rng.standard_normal((6, 2**12))
    rows = [dense, dense.astype(np.float32), sp.csr_array(dense * (rng.random(dense.shape) < 0.01))]
    masked = MaskedSecAgg(threshold=4, masks="seeded")
    for X in rows:
        for encoder in ("count_sketch", "hadamard"):
            variants: tuple[dict[str, Any], ...] = (
                {},
                {"mechanism": "skellam", "rotation": "hadamard", "secagg": masked},
            )
            for options in variants:
                estimator = SparseSecAgg(
                    encoder=encoder, epsilon=8.0, n_bits=24, decoder="linear",
                    random_state=0, diagnostics=True, **options,
                )  # fmt: skip
                yield partial(estimator.fit, X)
    yield lambda: GaussianEncoder(random_state=0).fit(dense).transform(dense)
    for size in (2**6, 2**12, 2**18):
        for kind in (np.float32, np.float64):
            yield partial(fwht, np.zeros((2, size), kind))
    for variance in (Fraction(4), Fraction(2**40)):
        yield partial(discrete_gaussian, variance, 100)
    A = rng.standard_normal((60, 200)) / 8
    matrices = [A, np.asfortranarray(A), A.astype(np.float32), sp.csr_array(A)]
    x = np.zeros(200)
    x[:5] = 1.0
    for name in solvers.names():
        for M in matrices:
            yield partial(_decode, solvers.get(name), M, M @ x)


def _decode(solver: Any, A: Any, y: Any) -> None:
    """Fit a solver; one that does not take this kind of matrix has nothing to compile for it."""
    with contextlib.suppress(TypeError, ValueError, NotImplementedError, ImportError):
        solver.fit(A, np.asarray(y, dtype=np.float64), noise_std=0.01)
