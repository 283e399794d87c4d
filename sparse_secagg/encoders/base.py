"""The encoder contract: a linear map S from R^d to R^m, drawn from a public seed, E‖Sx‖² = ‖x‖².

An encoder is a scikit-learn transformer around an operator. ``fit`` learns only d and the seed
(data values are never looked at), ``transform`` is x ↦ S x for rows x, ``inverse_transform`` the
linear unsketch y ↦ Sᵀ y, and ``operator_`` is S itself, as decoders need it.
"""

from __future__ import annotations

import numbers
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from solvers.operators import Operator
from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.sketches.described import Layer


class LinearEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all encoders share. Subclasses implement ``_make_operator(d, seed)``.

    Attributes
    ----------
    operator_ : Operator of shape (m, d)
        The map S: matvec, rmatvec, matmat, rmatmat, columns(J), column_norms().
    n_components_ : int
        The length m of a sketch.
    n_features_in_ : int
        The length d of a vector.
    seed_ : int
        The public seed; ``random_state=seed_`` gives the same S anywhere.

    See Also
    --------
    CountSketchEncoder, HadamardEncoder, GaussianEncoder : Those that are built in.
    solvers.as_operator : Makes an operator of a matrix.

    Examples
    --------
    >>> import numpy as np
    >>> import solvers
    >>> from sparse_secagg.encoders import LinearEncoder
    >>> class SignsEncoder(LinearEncoder):
    ...     '''A dense matrix of random signs, ten times shorter than the vectors.'''
    ...     def __init__(self, random_state=None):
    ...         self.random_state = random_state
    ...     def _make_operator(self, d, seed):
    ...         m = max(1, d // 10)
    ...         signs = np.random.default_rng(seed).choice([-1.0, 1.0], (m, d))
    ...         return solvers.as_operator(signs / np.sqrt(m))
    >>> SignsEncoder(random_state=0).fit_transform(np.ones((3, 100))).shape
    (3, 10)
    """

    operator_: Operator
    n_components_: int
    n_features_in_: int
    seed_: int

    def fit(self, X: Any, y: None = None) -> Self:
        """Learn the dimension from X of shape (n, d) and draw the public seed."""
        X = validate_data(self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32])
        return self._draw(X.shape[1])

    def fit_dimension(self, d: int) -> Self:
        """Do the same as ``fit`` for vectors of length d, with no data at hand."""
        if not isinstance(d, numbers.Integral) or d < 1:
            raise ValueError(f"d={d!r} is not a dimension; pass a positive integer.")
        self.n_features_in_ = int(d)
        return self._draw(int(d))

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the sketches S x of the rows of X (n, d), or of one vector (d,)."""
        check_is_fitted(self)
        if isinstance(X, np.ndarray) and X.ndim == 1:
            return np.asarray(self.transform(np.reshape(X, (1, -1)))[0])
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        return np.asarray(self.operator_.matmat(X.T).T.astype(X.dtype, order="C", copy=False))

    def inverse_transform(self, Y: Any) -> NDArray[np.floating]:
        """Return the linear unsketches Sᵀ y of the rows of Y (n, m), or of one sketch (m,)."""
        check_is_fitted(self)
        if isinstance(Y, np.ndarray) and Y.ndim == 1:
            return np.asarray(self.inverse_transform(np.reshape(Y, (1, -1)))[0])
        Y = check_array(Y, dtype=[np.float64, np.float32], input_name="Y")
        if Y.shape[1] != self.n_components_:
            raise ValueError(
                f"Y has sketches of length {Y.shape[1]}, but this {type(self).__name__} makes "
                f"sketches of length {self.n_components_}; pass rows made by its transform."
            )
        return np.asarray(self.operator_.rmatmat(Y.T).T.astype(Y.dtype, order="C", copy=False))

    def unsketch_error(self) -> float:
        """Return E‖SᵀSx − x‖²/‖x‖² over the seed, before any noise: the price of compression."""
        check_is_fitted(self)
        return self.unsketch_error_at(self.n_features_in_, self.n_components_)

    def unsketch_error_at(self, d: int, m: int) -> float:
        """Return the same for vectors of length d and sketches of length m, without a fit."""
        raise NotImplementedError(f"{type(self).__name__} states no error of its unsketch")

    def _draw(self, d: int) -> Self:
        self.seed_ = resolve_seed(getattr(self, "random_state", None))
        self.operator_ = self._make_operator(d, self.seed_)
        self.n_components_ = self.operator_.shape[0]
        return self

    def _make_operator(self, d: int, seed: int) -> Operator:
        raise NotImplementedError(f"{type(self).__name__} must implement _make_operator(d, seed)")

    @property
    def layers_(self) -> list[Layer]:
        """Parts of a vector that are clipped and sketched by themselves: here it is the whole."""
        return [Layer(slice(0, self.n_features_in_), 1.0, self.n_components_, self.sketch_rows)]

    def sketch_rows(self, rows: Any) -> NDArray[np.floating]:
        """Return the sketches of rows, dense or sparse, that were checked before."""
        return np.asarray(self.operator_.matmat(rows.T).T)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def dense_rows(X: Any) -> NDArray[np.floating]:
    """Return the rows of a dense or sparse matrix as a dense array."""
    return X.toarray() if sp.issparse(X) else np.asarray(X)
