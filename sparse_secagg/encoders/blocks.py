"""Per-layer encoding: a block-diagonal S over named slices of the vector.

Each layer l has an encoder of its own and a share w_l of the clipping norm, c_l = w_l·c with
Σ w_l² ≤ 1, so that layers clipped one by one are jointly within c and one accounting serves all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from solvers.operators import DiagonalBlock, Operator
from sparse_secagg.encoders.base import LinearEncoder
from sparse_secagg.encoders.count_sketch import CountSketchEncoder
from sparse_secagg.public_randomness import stream_key
from sparse_secagg.sketches.described import Layer
from sparse_secagg.sketches.lengths import clip_shares_of, layer_slices


@dataclass(frozen=True)
class Block:
    """One layer of a fitted :class:`BlockEncoder`.

    Parameters
    ----------
    name : str
        Name of the layer.
    features, components : slice
        Where the layer lies in the vector and in the sketch.
    clip_share : float
        The layer's share w_l of the clipping norm.
    encoder : LinearEncoder
        The layer's fitted encoder.

    See Also
    --------
    BlockEncoder : Keeps them in ``blocks_``.

    Examples
    --------
    >>> from sparse_secagg import BlockEncoder
    >>> encoder = BlockEncoder({"weights": slice(0, 90), "biases": slice(90, 100)})
    >>> [(block.name, block.components) for block in encoder.fit_dimension(100).blocks_]
    [('weights', slice(0, 9, None)), ('biases', slice(9, 10, None))]
    """

    name: str
    features: slice
    components: slice
    clip_share: float
    encoder: LinearEncoder


class BlockOperator(Operator):
    """The block-diagonal operator of the layers' operators."""

    has_column_norms = True

    def __init__(self, blocks: list[Block]) -> None:
        shape = (blocks[-1].components.stop, blocks[-1].features.stop)
        super().__init__(dtype=np.dtype(np.float64), shape=shape)
        self.blocks = blocks
        self.diagonal_blocks = [
            DiagonalBlock(block.features, block.components, block.encoder.operator_)
            for block in blocks
        ]

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._matmat(x.reshape(-1, 1)).ravel()

    def _rmatvec(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self._rmatmat(y.reshape(-1, 1)).ravel()

    def _matmat(self, X: Any) -> NDArray[np.float64]:
        out = np.empty((self.shape[0], X.shape[1]), order="F")
        X = X.tocsr() if sp.issparse(X) else X
        for block in self.blocks:
            out[block.components] = block.encoder.operator_.matmat(X[block.features])
        return out

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[np.float64]:
        out = np.empty((self.shape[1], Y.shape[1]), order="F")
        for block in self.blocks:
            out[block.features] = block.encoder.operator_.rmatmat(Y[block.components])
        return out

    def columns(self, J: ArrayLike) -> NDArray[np.float64]:
        J = self._check_columns(J)
        out = np.zeros((self.shape[0], len(J)), order="F")
        for block in self.blocks:
            here = np.flatnonzero((block.features.start <= J) & (block.features.stop > J))
            if len(here):
                inner = block.encoder.operator_.columns(J[here] - block.features.start)
                out[block.components, here] = inner
        return out

    def column_norms(self) -> NDArray[np.float64]:
        return np.concatenate([block.encoder.operator_.column_norms() for block in self.blocks])


class BlockEncoder(LinearEncoder):
    """Encode each layer of a vector by itself.

    Parameters
    ----------
    layers : dict of str to slice, optional
        Named slices that follow each other and cover the vector, in order: ``{"hidden": slice(0,
        80), "output": slice(80, 100)}``. None makes one layer of the whole vector.
    encoder : LinearEncoder or dict of str to LinearEncoder, optional
        One encoder for all layers (each gets a copy and a seed of its own), or one for each.
        ``CountSketchEncoder()`` by default.
    clip_shares : "size", "equal" or dict of str to float, default="size"
        Shares w_l of the clipping norm: w_l² proportional to the layer's size, all equal, or as
        given, with Σ w_l² ≤ 1.
    random_state : int, RandomState, Generator or None, default=None
        The public seed, from which each layer's seed is derived.

    Attributes
    ----------
    blocks_ : list of Block
        Name, slices, clip share and fitted encoder of each layer.

    See Also
    --------
    SparseSecAgg : Makes one of ``layers=``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import BlockEncoder, CountSketchEncoder, IdentityEncoder
    >>> encoder = BlockEncoder(
    ...     layers={"hidden": slice(0, 900), "bias": slice(900, 1000)},
    ...     encoder={"hidden": CountSketchEncoder(compression=10), "bias": IdentityEncoder()},
    ... ).fit(np.zeros((1, 1000)))
    >>> encoder.n_components_
    190
    >>> {block.name: round(block.clip_share, 3) for block in encoder.blocks_}
    {'hidden': 0.949, 'bias': 0.316}
    """

    blocks_: list[Block]

    def __init__(
        self,
        layers: Mapping[str, slice] | None = None,
        *,
        encoder: LinearEncoder | Mapping[str, LinearEncoder] | None = None,
        clip_shares: str | Mapping[str, float] = "size",
        random_state: Any = None,
    ) -> None:
        self.layers = layers
        self.encoder = encoder
        self.clip_shares = clip_shares
        self.random_state = random_state

    def clip_norms(self, clip_norm: float) -> dict[str, float]:
        """Return each layer's clipping norm c_l; together they are within ``clip_norm``."""
        return {block.name: block.clip_share * clip_norm for block in self.blocks_}

    def _make_operator(self, d: int, seed: int) -> BlockOperator:
        layers = layer_slices(self.layers, d)
        shares = clip_shares_of(self.clip_shares, layers)
        self.blocks_ = []
        start = 0
        for k, (name, features) in enumerate(layers.items()):
            encoder = clone(self._encoder_of(name))
            if "random_state" in encoder.get_params():
                encoder.set_params(random_state=int(stream_key(seed, "block", k)))
            encoder.fit_dimension(features.stop - features.start)
            components = slice(start, start + encoder.n_components_)
            self.blocks_.append(Block(name, features, components, shares[name], encoder))
            start = components.stop
        return BlockOperator(self.blocks_)

    @property
    def layers_(self) -> list[Layer]:
        """The layers, each with its share of the clip and the sketch of its encoder."""
        return [
            Layer(
                block.features,
                block.clip_share,
                block.encoder.n_components_,
                block.encoder.sketch_rows,
            )
            for block in self.blocks_
        ]

    def unsketch_error(self) -> float:
        """Return the worst layer's error: how energy is spread over the layers is not known."""
        return max(block.encoder.unsketch_error() for block in self.blocks_)

    def _encoder_of(self, name: str) -> LinearEncoder:
        if self.encoder is None:
            return CountSketchEncoder()
        if not isinstance(self.encoder, Mapping):
            return self.encoder
        if name not in self.encoder:
            raise ValueError(
                f"encoder has no entry for layer {name!r}, only for {list(self.encoder)}; "
                "give one encoder for each layer, or a single one for all."
            )
        return self.encoder[name]
