"""The Gaussian ensemble S_ij ~ N(0, 1/m), the paper's choice for sparse means.

Columns come from counters, so any of them can be made again: S is stored when it fits a memory
budget and otherwise streamed, a block of columns at a time.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from solvers.operators import DenseOperator, Operator
from solvers.parallel import for_each, n_threads
from sparse_secagg.encoders.base import LinearEncoder
from sparse_secagg.public_randomness import stream_key, words
from sparse_secagg.sketches.lengths import resolve_n_components

#: Bytes of the columns made at once while streaming.
_BLOCK_BYTES = 2**25
#: Up to this m the certificate of sigma_max factorises an m×m matrix.
_CHOLESKY_UP_TO = 5000
#: Chance that the iterative bound on sigma_max for larger m fails, over its random start.
SIGMA_MAX_FAILURE = 1e-12
#: Slack of the iterative bound: it is at most 1/√(1 − 0.05), 2.6 %, above sigma_max.
_LANCZOS_SLACK = 0.05


class GaussianOperator(Operator):
    """The m×d Gaussian ensemble of a seed, stored or streamed.

    Parameters
    ----------
    d, m : int
        Length of the vectors and of the sketches.
    seed : int
        Public seed.
    memory_budget : float
        Bytes that may be used to store S; beyond, columns are made anew for every product.
    """

    has_column_norms = True

    def __init__(self, d: int, m: int, seed: int, memory_budget: float) -> None:
        super().__init__(dtype=np.dtype(np.float64), shape=(m, d))
        self.seed = seed
        self.stored = 8 * m * d <= memory_budget
        self._key = stream_key(seed, "gaussian")
        self._matrix: NDArray[np.float64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_matrix": None}  # made again from the seed when needed

    def columns(self, J: ArrayLike) -> NDArray[np.float64]:
        J = self._check_columns(J)
        if self._matrix is not None:
            return np.asfortranarray(self._matrix[:, J])
        return self._make_columns(J)

    def toarray(self) -> NDArray[np.float64]:
        if not self.stored:
            return self._make_columns(np.arange(self.shape[1]))
        if self._matrix is None:
            self._matrix = self._make_columns(np.arange(self.shape[1]))
        return self._matrix

    def as_stored(self) -> Operator:
        return DenseOperator(self.toarray()) if self.stored else self

    def column_norms(self) -> NDArray[np.float64]:
        norms = np.empty(self.shape[1])
        for J, S_J in self._blocks():
            norms[J] = np.linalg.norm(S_J, axis=0)
        return norms

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._matmat(x.reshape(-1, 1)).ravel()

    def _rmatvec(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self._rmatmat(y.reshape(-1, 1)).ravel()

    def _matmat(self, X: Any) -> NDArray[np.float64]:
        if sp.issparse(X):  # only the columns that some vector uses
            X = sp.csr_array(X)
            used = np.flatnonzero(np.diff(X.indptr))
            out = np.zeros((self.shape[0], X.shape[1]))
            for block in self._split(used):
                out += self.columns(block) @ X[block].toarray()
            return out
        out = np.zeros((self.shape[0], X.shape[1]))
        for J, S_J in self._blocks():
            out += S_J @ X[J]
        return out

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[np.float64]:
        out = np.empty((self.shape[1], Y.shape[1]))
        for J, S_J in self._blocks():
            out[J] = S_J.T @ Y
        return out

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield (slice of columns, those columns), all at once when S is stored."""
        d = self.shape[1]
        if self.stored:
            yield slice(0, d), self.toarray()
            return
        for J in self._split(np.arange(d)):
            yield slice(J[0], J[-1] + 1), self._make_columns(J)

    def _split(self, J: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        block = max(1, _BLOCK_BYTES // (8 * self.shape[0]))
        return [J[start : start + block] for start in range(0, len(J), block)]

    def _make_columns(self, J: NDArray[np.int64]) -> NDArray[np.float64]:
        from sparse_secagg.encoders._gaussian_kernels import fill_columns

        m = self.shape[0]
        out = np.empty((len(J), m))
        n_chunks = max(1, min(4 * n_threads(), len(J)))
        J_chunks, out_chunks = np.array_split(J, n_chunks), np.array_split(out, n_chunks)
        for_each(
            lambda i: fill_columns(self._key, J_chunks[i], m**-0.5, out_chunks[i]),
            n_chunks,
            threaded=out.size >= 2**14,
        )
        return out.T

    def sigma_max(self) -> float:
        """Return an upper bound on the largest singular value of S, without a full SVD.

        For m ≤ 5000 the bound u is certified by a Cholesky factorisation of u²·I − SSᵀ and within
        1e-6 relative of the truth. For larger m it is the Lanczos bound of Kuczyński and
        Woźniakowski, within 2.6 %, and fails with probability at most 1e-12 over its random start.
        """
        if self.shape[0] <= _CHOLESKY_UP_TO:
            return _certified_sigma_max(self._gram())
        return self._lanczos_sigma_max()

    def _gram(self) -> NDArray[np.float64]:
        gram = np.zeros((self.shape[0], self.shape[0]))
        for _, S_J in self._blocks():
            gram += S_J @ S_J.T
        return gram

    def _lanczos_sigma_max(self) -> float:
        """Bound λ = σ² by Lanczos from a random start.

        After k steps the Ritz value θ satisfies P[θ < (1 − a)·λ] ≤ 1.648·√m·exp(−√a·(2k − 1)), so
        λ ≤ θ/(1 − a) except with that probability.
        """
        m = self.shape[0]
        log_odds = math.log(1.648 * math.sqrt(m) / SIGMA_MAX_FAILURE)
        n_steps = math.ceil((log_odds / math.sqrt(_LANCZOS_SLACK) + 1) / 2)
        basis = np.zeros((m, n_steps + 1), order="F")
        diagonal, off_diagonal = np.zeros(n_steps), np.zeros(n_steps)
        start = self._random_start()
        basis[:, 0] = start / np.linalg.norm(start)
        for k in range(n_steps):
            v = self.matvec(self.rmatvec(basis[:, k]))
            diagonal[k] = basis[:, k] @ v
            known = basis[:, : k + 1]
            for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
                v -= known @ (known.T @ v)
            off_diagonal[k] = np.linalg.norm(v)
            basis[:, k + 1] = v / off_diagonal[k]
        ritz = scipy.linalg.eigvalsh_tridiagonal(diagonal, off_diagonal[:-1])[-1]
        return math.sqrt(ritz / (1 - _LANCZOS_SLACK)) * (1 + 1e-9)  # rounding of the products

    def _random_start(self) -> NDArray[np.float64]:
        """Return a standard normal vector from a stream of its own."""
        m = self.shape[0]
        bits = words(stream_key(self.seed, "gaussian-lanczos-start"), 0, 2 * m)
        u, v = ((bits >> np.uint64(11)).astype(np.float64) + 1).reshape(2, m) * 2.0**-53
        return np.asarray(np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v))


def _certified_sigma_max(gram: NDArray[np.float64]) -> float:
    """Return σ with σ²·I − gram positive definite, as shown by its Cholesky factorisation.

    A factorisation that runs to the end shows the matrix is positive definite up to a rounding
    error below m²·eps·σ², which the last line adds.
    """
    m = len(gram)
    bound = scipy.linalg.eigvalsh(gram, subset_by_index=[m - 1, m - 1])[0]
    slack = 1e-12
    while True:
        try:
            scipy.linalg.cholesky(bound * (1 + slack) * np.eye(m) - gram, check_finite=False)
        except scipy.linalg.LinAlgError:
            slack *= 4
        else:
            return math.sqrt(bound * (1 + slack + m**2 * np.finfo(float).eps))


class GaussianEncoder(LinearEncoder):
    """Encode vectors by an i.i.d. Gaussian matrix with entries N(0, 1/m).

    E SᵀS = I and E‖SᵀSx − x‖² = (d + 1)/m·‖x‖², over the draw of the seed.

    Parameters
    ----------
    n_components : int, optional
        Length m of a sketch, at most d.
    compression : float, optional
        d/m, in place of ``n_components``. With neither given, 10.
    memory_budget : float, default=2**30
        Bytes that may be used to store S. When S (8·m·d bytes) is larger, its columns are made
        anew, in blocks of 32 MB, for every product.
    random_state : int, RandomState, Generator or None, default=None
        The public seed; None draws a fresh one, kept in ``seed_``.

    See Also
    --------
    CountSketchEncoder : Much faster, for large d.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import GaussianEncoder
    >>> encoder = GaussianEncoder(n_components=50, random_state=0).fit(np.zeros((1, 1000)))
    >>> encoder.transform(np.ones(1000)).shape
    (50,)
    """

    operator_: GaussianOperator

    def __init__(
        self,
        n_components: int | None = None,
        *,
        compression: float | None = None,
        memory_budget: float = 2**30,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.compression = compression
        self.memory_budget = memory_budget
        self.random_state = random_state

    def _make_operator(self, d: int, seed: int) -> GaussianOperator:
        m = resolve_n_components(d, self.n_components, self.compression)
        if not isinstance(self.memory_budget, numbers.Real) or not self.memory_budget >= 0:
            raise ValueError(
                f"memory_budget={self.memory_budget!r} must be a number of bytes, 0 or more; "
                "0 always streams."
            )
        return GaussianOperator(d, m, seed, self.memory_budget)

    def unsketch_error_at(self, d: int, m: int) -> float:
        return (d + 1) / m

    def sigma_max(self) -> float:
        """Return a certified upper bound on the largest singular value of S."""
        return self.operator_.sigma_max()
