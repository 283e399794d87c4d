"""SparseSecAgg: one private round as an estimator, and any number of decodings of its result.

``fit`` clips and sketches every row, sends it through the mechanism and secure aggregation, and
keeps the noisy mean sketch ŷ ≈ Sμ + noise; ``decode`` inverts S with any solver, which costs no
privacy.
"""

from __future__ import annotations

import copy
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from solvers.operators import Operator
from sparse_secagg import mechanisms
from sparse_secagg.clipping import AdaptiveClip
from sparse_secagg.decoding import Decodable
from sparse_secagg.encoders import BlockEncoder, LinearEncoder, registry
from sparse_secagg.exceptions import PrivacyWarning
from sparse_secagg.feedback import ThresholdFeedback
from sparse_secagg.mechanisms import IntegerMechanism
from sparse_secagg.mechanisms.base import centre
from sparse_secagg.mechanisms.randomness import (
    PrivateRandomness,
    Randomness,
    SimulationRandomness,
)
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.planner import Plan, describe_round, plan
from sparse_secagg.planning.clips import SketchClip
from sparse_secagg.planning.predictions import PREDICTIONS
from sparse_secagg.privacy import DEFAULT_ORDERS, Costed, Ledger, RoundPrivacy
from sparse_secagg.rounds import Round, RoundConfig, make_decoder
from sparse_secagg.secagg import IdealSecAgg, MaskedSecAgg
from sparse_secagg.secagg.dropouts import resolve_dropouts
from sparse_secagg.secagg.modular import modular_sum
from sparse_secagg.secagg.setup import resolve_threshold
from sparse_secagg.secagg.weights import unit_weights

__all__ = ["Diagnostics", "RoundResult", "SparseSecAgg"]

#: Bytes of sketches, messages and rows read from elsewhere that are held at once.
_BLOCK_BYTES = 2**26
_SECAGG = {"ideal": IdealSecAgg, "masked": MaskedSecAgg}


@dataclass(frozen=True)
class RoundResult(Costed):
    """What a round gave and cost; prints as a table.

    Attributes
    ----------
    privacy : RoundPrivacy
        What the round revealed to whom, with the noise that survived.
    noise_std : float
        Standard deviation of the noise in each coordinate of the mean sketch.
    n_clients, n_survivors : int
        Clients asked, and clients whose messages are in the sum.
    dim, n_components : int
        Lengths d of a vector and m of a sketch.
    bits_per_client : int
        Payload of one message.
    bits_per_parameter : float
        The same, divided by d.
    seconds : dict
        Time of each stage.
    not_private : bool
        True for simulations and for rounds without noise.
    """

    privacy: RoundPrivacy
    noise_std: float
    n_clients: int
    n_survivors: int
    dim: int
    n_components: int
    bits_per_client: int
    bits_per_parameter: float
    seconds: dict[str, float]
    not_private: bool

    def __str__(self) -> str:
        rows = {
            "privacy": f"({self.epsilon:.4g}, {self.delta:.3g})-DP against {self.observer} "
            f"({self.privacy.adjacency})"
            + (", NOT PRIVATE: simulated or without noise" if self.not_private else ""),
            "zcdp_epsilon": f"{self.zcdp_epsilon:.4g}",
            "clients": f"{self.n_survivors:,} of {self.n_clients:,}",
            "sketch": f"{self.dim:,} -> {self.n_components:,}",
            "noise_std": f"{self.noise_std:.4g}",
            "message": f"{self.bits_per_client:,} bits, "
            f"{self.bits_per_parameter:.4g} per parameter",
            "seconds": ", ".join(f"{stage} {t:.3g}" for stage, t in self.seconds.items()),
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows.items())


@dataclass(frozen=True)
class Diagnostics:
    """What the clients' data did to the round. Data-dependent, so **not private**.

    Attributes
    ----------
    n_nonfinite : int
        Clients whose vector had NaN or Inf and counted as zero.
    n_clipped, n_sketch_clipped, n_rejected : int
        Vectors clipped, sketches clipped, rounded sketches that failed the integer check.
    n_wrapped : int
        Coordinates of the sum that left the range of the modulus.
    clipping_error : float
        ‖μ_c − μ‖² for the means before and after clipping.
    compression_error : float
        ‖SᵀSμ_c − μ_c‖²: the linear decoder's error without noise.
    privatisation_error : float
        ‖ŷ − Sμ_c‖²: noise, rounding, sketch clipping and wrapping, in the sketch.
    decoding_error : float
        ‖μ̂ − μ_c‖² of ``mean_``.
    squared_norm : float
        ‖μ‖², to compare with.
    """

    n_nonfinite: int
    n_clipped: int
    n_sketch_clipped: int
    n_rejected: int
    n_wrapped: int
    clipping_error: float
    compression_error: float
    privatisation_error: float
    decoding_error: float
    squared_norm: float


class SparseSecAgg(Decodable, BaseEstimator):
    """Private mean of many clients' vectors, from short integer sketches.

    Parameters
    ----------
    encoder : str or LinearEncoder, default="count_sketch"
        "count_sketch", "gaussian", "hadamard", "identity", "auto" or an instance. "auto" is the
        fastest: a count sketch for scipy sparse matrices, "hadamard" for everything else. The kind
        of container decides, never what is in it: the choice reveals nothing.
    compression : float or None, default=10
        d/m, for an encoder given by name. None: as :func:`~sparse_secagg.plan` chooses it for
        ``n_bits``, given ``sparsity`` or else for the linear decoder.
    mechanism : str or IntegerMechanism, default="ddg"
        "ddg", "skellam", "central" or an instance. An instance brings its own target and bits.
    epsilon, delta : float
        (ε, δ)-DP of one round.
    noise_multiplier : float, optional
        z in place of ``epsilon``; 0 adds no noise and is not private.
    clip_norm : float or AdaptiveClip, default=1.0
        ℓ₂ clip of a client's vector. An :class:`~sparse_secagg.clipping.AdaptiveClip` follows a
        quantile of the norms from ``fit`` to ``fit``, at a cost that is added to the round's.
    n_bits : int, default=16
        Bits of a coordinate of a message.
    decoder : str or Solver, default="amp"
        Solver that makes ``mean_``; :meth:`decode` tries others free of charge.
    secagg : str or secure aggregation, default="ideal"
        "ideal", "masked" or an instance. The noise is sized for the guaranteed survivors: the
        threshold, where there is one.
    adjacency : {"zero_out", "replace_one"}, default="zero_out"
        What neighbouring cohorts are.
    colluders : int, default=0
        Clients that may tell the server their noise: it is sized without theirs, and ε is against
        the server together with them.
    min_survivors : int, optional
        Clients that must survive; the noise is sized for them. Fewer raise
        :class:`~sparse_secagg.secagg.BelowThresholdError` and nothing is decoded. None: any
        number is decoded, ``epsilon_`` is what their noise gives, and a warning says by how much
        it exceeds what was asked for.
    ledger : Ledger or path, optional
        Charged by every ``fit`` before the sum is opened.
    rotation : {"dft", "hadamard"}, default="dft"
        Flattening before rounding.
    sketch_clip : {"tight", "jl", "spectral"} or float, default="tight"
        Clip of the sketches over that of the vectors: the factor of the least predicted error,
        which is 1 from m = 800 on; the paper's 1.1; σ_max(S); or a number.
    sparsity : int, optional
        Nonzero coordinates of the mean, where known: for ``compression=None`` and ``plan_``.
    layers : dict of str to slice, optional
        Encode named slices of the vector one by one, each with its share of the clip.
    feedback : ThresholdFeedback, optional
        Threshold the sketch and carry the error over to the next ``fit``. Needs an integer
        ``random_state``, so that S stays the same. An experiment: it makes ``mean_`` biased.
    random_state : int, RandomState, Generator or None, default=None
        Public randomness only: sketch and rotation. None draws it anew at every ``fit``.
    simulation_seed : int, optional
        Seeds the private noise too: reproducible, and **not private**. For experiments.
    diagnostics : bool, default=False
        Whether ``fit`` compares its result with the data, for ``diagnostics_``; this takes another
        pass over them.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
        Estimate of the mean of the clipped vectors, by ``decoder``.
    sketch_ : ndarray of shape (m,)
        The noisy mean sketch: all that was learnt from the clients.
    operator_ : Operator of shape (m, d)
        The public map S.
    solver_ : Solver
        The fitted decoder, with what it knows of itself (iterations, certificate, ``std_err_``).
    noise_std_ : float
        Standard deviation of the noise in each coordinate of ``sketch_``.
    epsilon_, zcdp_epsilon_ : float
        What the round cost against the server (and ``colluders``), with the noise that survived.
        With ``mechanism="central"``, whose server is trusted: what the release costs.
    privacy_ : RoundPrivacy
        The same and more, for every observer.
    rdp_ : ndarray
        The Rényi curve behind ``epsilon_`` at ``accounting.DEFAULT_ORDERS``.
    n_survivors_ : int
        Clients in the sum.
    bits_per_client_, bits_per_parameter_ : int, float
        Payload of a message, and the same divided by d.
    seed_ : int
        The public seed.
    clip_ : AdaptiveClip
        With adaptive clipping: its state, and the clip of the next round.
    config_ : RoundConfig
        The round, as a server would broadcast it.
    result_ : RoundResult
        All of these as one record that prints as a table.
    diagnostics_ : Diagnostics
        With ``diagnostics=True``: counts and errors that depend on the data. Not private, not
        pickled.
    not_private_ : bool
        True for simulations and for rounds without noise.

    Notes
    -----
    Privacy is spent by every ``fit``; also by each one that ``GridSearchCV`` makes, which warns.
    Choose decoders with :meth:`decode` instead: it uses the released sketch only.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import SparseSecAgg
    >>> X = np.zeros((500, 2000))
    >>> X[:, :5] = 0.4
    >>> round = SparseSecAgg(epsilon=4.0, decoder="working_set").fit(X)
    >>> np.flatnonzero(round.mean_ > 0.2).tolist()
    [0, 1, 2, 3, 4]
    >>> round.bits_per_parameter_ < 1.6
    True
    """

    mean_: NDArray[np.float64]
    sketch_: NDArray[np.float64]
    operator_: Operator

    def __init__(
        self,
        encoder: str | LinearEncoder = "count_sketch",
        *,
        compression: float | None = 10,
        mechanism: str | IntegerMechanism = "ddg",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        clip_norm: float | AdaptiveClip = 1.0,
        n_bits: int = 16,
        decoder: Any = "amp",
        secagg: Any = "ideal",
        adjacency: str = "zero_out",
        colluders: int = 0,
        min_survivors: int | None = None,
        ledger: Any = None,
        rotation: str = "dft",
        sketch_clip: SketchClip = "tight",
        sparsity: int | None = None,
        layers: dict[str, slice] | None = None,
        feedback: ThresholdFeedback | None = None,
        random_state: Any = None,
        simulation_seed: int | None = None,
        diagnostics: bool = False,
    ) -> None:
        self.encoder = encoder
        self.compression = compression
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.clip_norm = clip_norm
        self.n_bits = n_bits
        self.decoder = decoder
        self.secagg = secagg
        self.adjacency = adjacency
        self.colluders = colluders
        self.min_survivors = min_survivors
        self.ledger = ledger
        self.rotation = rotation
        self.sketch_clip = sketch_clip
        self.sparsity = sparsity
        self.layers = layers
        self.feedback = feedback
        self.random_state = random_state
        self.simulation_seed = simulation_seed
        self.diagnostics = diagnostics

    @classmethod
    def from_plan(cls, p: Plan, **parameters: Any) -> Self:
        """Return an estimator that runs a plan.

        Parameters
        ----------
        p : Plan
            Made by :func:`~sparse_secagg.plan`.
        **parameters
            Further parameters of the estimator, such as ``random_state``.

        Examples
        --------
        >>> from sparse_secagg import SparseSecAgg, plan
        >>> SparseSecAgg.from_plan(plan(d=1000, n_clients=1000, epsilon=1.0)).encoder
        IdentityEncoder()
        """
        mechanism = p.make_mechanism()
        secagg: Any = p.secagg
        if p.threshold is not None or p.neighbors is not None:
            secagg = _SECAGG[p.secagg](threshold=p.threshold)
            if p.neighbors is not None:
                secagg.set_params(neighbors=p.neighbors)
        settings: dict[str, Any] = {
            "encoder": p.make_encoder(),
            "compression": p.compression,
            "mechanism": mechanism,
            "epsilon": mechanism.epsilon,
            "delta": p.delta,
            "noise_multiplier": mechanism.noise_multiplier,
            "clip_norm": p.clip_norm,
            "n_bits": p.n_bits,
            "decoder": p.decoder,
            "secagg": secagg,
            "adjacency": p.parameters.adjacency,
            "rotation": p.parameters.rotation,
            "sketch_clip": p.sketch_clip,
            "sparsity": p.sparsity,
        }
        return cls(**(settings | parameters))

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        dropouts: Any = None,
    ) -> Self:
        """Run one private round over the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix or recording of shape (n_clients, d)
            One client a row. A row with NaN or Inf counts as zero. Rows are read in blocks.
        y : ignored
        sample_weight : array-like of shape (n_clients,), optional
            Public weights, scaled to at most 1 and applied before clipping.
        dropouts : optional
            Clients that leave: a list, a rate, or a mapping from stages to lists.
        """
        X = self._check_rows(X)
        n, d = X.shape
        weights = None if sample_weight is None else _check_weights(sample_weight, n)
        decoder = make_decoder(self.decoder)  # a bad name must not cost a round
        feedback = self._continue("feedback")
        if feedback is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                f"random_state={self.random_state!r} draws a new sketch every round, which error "
                "feedback cannot carry over; pass an integer."
            )
        clip = self._continue("clip_norm") if isinstance(self.clip_norm, AdaptiveClip) else None
        rng = self._randomness()
        secagg = self._make_secagg()
        config = RoundConfig.create(
            dim=d,
            n_clients=n,
            encoder=self._make_encoder(n, d, sparse=sp.issparse(X)),
            mechanism=self._make_mechanism(secagg, n),
            clip_norm=self.clip_norm if clip is None else clip.current,
            sketch_clip=self.sketch_clip,
            random_state=self.random_state,
        )
        run = _Run(Round(config), rng, secagg, self.diagnostics)
        account = _Account(self._make_ledger(config.delta), run.round, clip)
        run.collect(X, weights, dropouts, account)
        if clip is not None:
            # only survivors' bits, and their noise, can be counted on
            norms = np.concatenate(run.norms)[run.survivors]
            p = config.mechanism
            colluders = min(p.colluders, len(norms) - 1)
            clip.update(norms, rng, adjacency=p.adjacency, colluders=colluders)
        self._keep(run, decoder, weights, clip, feedback, account.privacy)
        return self

    def score(self, X: Any, y: None = None) -> float:
        """Return 1 − ‖mean_ − mean(X)‖²/‖mean(X)‖². Not private: for evaluation only."""
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        truth = np.asarray(X.mean(axis=0)).ravel()
        return float(1 - np.sum((self.mean_ - truth) ** 2) / np.sum(truth**2))

    @property
    def plan_(self) -> Plan:
        """What was fitted, as a plan: encoder, clip, noise, predicted error and lower bounds.

        Errors are those of ``decoder`` if ``sparsity`` is given or it is linear, and otherwise of
        the linear decoder, which ``plan_.decoder`` says.
        """
        check_is_fitted(self)
        round_ = Round(self.config_)
        return describe_round(
            encoder=round_.encoder,
            encoder_name=self.config_.encoder["name"],
            decoder=_decoder_name(self.decoder),
            parameters=self.config_.mechanism,
            clip_norm=self.config_.clip_norm,
            privacy=self.privacy_,
            noise_std=self.noise_std_,
            sparsity=self.sparsity,
            aggregation=self._make_secagg(),
        )

    def _continue(self, name: str) -> Any:
        """Return a copy of a part with state: as the last fit left it, or as given."""
        given = getattr(self, name)
        if given is None:
            return None
        last = getattr(self, {"clip_norm": "clip_", "feedback": "feedback_"}[name], None)
        same = last is not None and last.get_params() == given.get_params()
        return copy.deepcopy(last) if same else clone(given)

    # -- parts --------------------------------------------------------------------------------

    def _make_encoder(self, n_clients: int, d: int, *, sparse: bool) -> LinearEncoder:
        encoder = self.encoder
        if isinstance(encoder, str):
            if encoder == "auto":
                encoder = "count_sketch" if sparse else "hadamard"
            compression = self.compression
            if compression is None and encoder != "identity":
                compression = self._planned_compression(n_clients, d, encoder)
            sizes = {} if encoder == "identity" else {"compression": compression}
            if encoder == "blocks":
                raise ValueError("encoder='blocks': give layers= and the encoder of each layer.")
            encoder = registry.get(encoder, **sizes)
        return encoder if self.layers is None else BlockEncoder(self.layers, encoder=encoder)

    def _planned_compression(self, n_clients: int, d: int, encoder: str) -> float:
        """Return the compression of the fewest bits, as the planner sees the round."""
        if not isinstance(self.mechanism, str):
            raise ValueError("compression=None needs a mechanism given by its name, to plan with.")
        decoder = _decoder_name(self.decoder)
        if self.sparsity is None or decoder not in PREDICTIONS:
            decoder = "linear"
        return plan(
            d,
            n_clients,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            n_bits=self.n_bits,
            sparsity=self.sparsity,
            encoder=encoder,
            decoder=decoder,
            secagg=self._make_secagg(),
            colluders=self.colluders,
            min_survivors=self.min_survivors,
            mechanism="ddg" if self.mechanism == "central" else self.mechanism,
            rotation=self.rotation,
            adjacency=self.adjacency,
            sketch_clip=self.sketch_clip,
        ).compression

    def _make_mechanism(self, secagg: Any, n_clients: int) -> IntegerMechanism:
        guaranteed = self.min_survivors
        if isinstance(secagg, MaskedSecAgg) or secagg.threshold is not None:
            guaranteed = max(guaranteed or 0, resolve_threshold(secagg.threshold, n_clients))
        if not isinstance(self.mechanism, str):
            # an instance brings its own promises, which may be stronger
            own = self.mechanism
            self._check_instance(own)
            least = max(guaranteed or 0, own.min_survivors or 0) or None
            return clone(own).set_params(
                min_survivors=least, colluders=max(self.colluders, own.colluders)
            )
        return mechanisms.get(
            self.mechanism,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            n_bits=self.n_bits,
            adjacency=self.adjacency,
            rotation=self.rotation,
            min_survivors=guaranteed,
            colluders=self.colluders,
        )

    def _check_instance(self, own: IntegerMechanism) -> None:
        """Raise if a promise of privacy is given here and differs in the mechanism given."""
        defaults = {name: p.default for name, p in signature(type(self)).parameters.items()}
        for name in ("epsilon", "delta", "noise_multiplier", "adjacency"):
            mine, its = getattr(self, name), getattr(own, name)
            if mine not in (defaults[name], its):
                raise ValueError(
                    f"{name}={mine!r} is not used, since mechanism= is an instance whose {name} is "
                    f"{its!r}; give it there."
                )

    def _make_ledger(self, delta: float) -> Any:
        ledger = self.ledger
        if isinstance(ledger, str | os.PathLike):
            ledger = Ledger(delta, path=ledger)
        if ledger is not None and getattr(ledger, "delta", delta) != delta:
            raise ValueError(
                f"delta={delta} of the round differs from delta={ledger.delta} of the ledger; use "
                "one delta for both."
            )
        return ledger

    def _make_secagg(self) -> Any:
        if not isinstance(self.secagg, str):
            return clone(self.secagg)
        if self.secagg not in _SECAGG:
            raise ValueError(
                f"secagg={self.secagg!r} is not known; choose one of {', '.join(_SECAGG)}."
            )
        return _SECAGG[self.secagg]()

    def _randomness(self) -> Randomness:
        if _inside_model_selection():
            warnings.warn(
                "scikit-learn's model selection fits this estimator once per candidate and fold, "
                "and every fit spends epsilon on the same clients. To choose a decoder, fit once "
                "and call decode, which is free.",
                PrivacyWarning,
                stacklevel=3,
            )
        if self.simulation_seed is None:
            return PrivateRandomness()
        warnings.warn(
            f"simulation_seed={self.simulation_seed} makes the noise predictable: the result is "
            "not private. Leave it out for real data.",
            PrivacyWarning,
            stacklevel=3,
        )
        return SimulationRandomness(self.simulation_seed)

    def _check_rows(self, X: Any, reset: bool = True) -> Any:
        if hasattr(X, "__array__") or sp.issparse(X) or not hasattr(X, "shape"):
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
            )
        self.n_features_in_ = X.shape[1]
        return X

    # -- results ------------------------------------------------------------------------------

    def _keep(
        self,
        run: _Run,
        decoder: Any,
        weights: NDArray[np.float64] | None,
        clip: AdaptiveClip | None,
        feedback: ThresholdFeedback | None,
        privacy: RoundPrivacy,
    ) -> None:
        """Decode and set the fitted attributes: all at once, so an interrupt leaves none behind."""
        mechanism, config = run.round.mechanism, run.round.config
        p = config.mechanism
        survivors = run.survivors
        k = len(survivors)
        scale = 1.0 if weights is None else k / weights[survivors].sum()
        operator = run.round.encoder.operator_
        with run.timed("decode sum"):
            sketch = scale * run.round.decode(run.total, k, run.rng)
        if feedback is not None:
            sketch = feedback.apply(sketch)
        noise_std = scale * mechanism.noise_std(k)
        with run.timed("decode mean"):
            decoder.fit(operator, sketch, noise_std=noise_std)
        not_private = self.simulation_seed is not None or not p.variance or run.simulated_masks
        result = RoundResult(
            privacy=privacy,
            noise_std=noise_std,
            n_clients=p.n_clients,
            n_survivors=k,
            dim=config.dim,
            n_components=p.dim,
            bits_per_client=p.bits_per_client,
            bits_per_parameter=p.bits_per_client / config.dim,
            seconds=run.seconds,
            not_private=not_private,
        )
        diagnostics = run.diagnose(sketch, decoder.coef_, scale)
        if diagnostics is None:
            self.__dict__.pop("diagnostics_", None)  # an earlier fit's
        else:
            self.diagnostics_ = diagnostics
        self.config_, self.result_ = config, result
        self.operator_, self.sketch_, self.mean_ = operator, sketch, decoder.coef_
        self.solver_ = decoder
        self.noise_std_ = noise_std
        self.epsilon_, self.zcdp_epsilon_ = result.epsilon, result.zcdp_epsilon
        self.privacy_, self.rdp_ = privacy, privacy.rdp(DEFAULT_ORDERS)
        if clip is not None:
            self.clip_ = clip
        if feedback is not None:
            self.feedback_ = feedback
        self.n_survivors_ = k
        self.bits_per_client_ = result.bits_per_client
        self.bits_per_parameter_ = result.bits_per_parameter
        self.seed_ = config.encoder_seed
        self.not_private_ = not_private

    def __getattr__(self, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name == "diagnostics_":
            message += "; pass diagnostics=True and fit, which then compares with the clients' data"
        raise AttributeError(f"{message}.")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("diagnostics_", None)  # it depends on the clients' data
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags


class _Account:
    """What a round costs: charged before the sum is opened, corrected when the survivors are known.

    Attributes
    ----------
    privacy : RoundPrivacy
        Of the round, adaptive clipping included.
    """

    privacy: RoundPrivacy

    def __init__(self, ledger: Any, round_: Round, clip: AdaptiveClip | None) -> None:
        self._ledger, self._round, self._clip = ledger, round_, clip
        self._number: int | None = None

    def open(self, n_survivors: int) -> None:
        """Charge the round for the survivors that are known or guaranteed."""
        self.privacy = self._cost(n_survivors)
        if self._ledger is not None:
            self._number = self._ledger.charge(self.privacy)

    def close(self, n_survivors: int) -> None:
        """Correct the charge to the survivors there were."""
        self.privacy = self._cost(n_survivors)
        if self._ledger is not None:
            self._ledger.settle(self._number, self.privacy)

    def _cost(self, n_survivors: int) -> RoundPrivacy:
        privacy = self._round.privacy(n_survivors)
        if self._clip is None:
            return privacy
        count = self._clip.mechanism(
            n_survivors,
            adjacency=privacy.adjacency,
            colluders=min(privacy.colluders, n_survivors - 1),
        )
        return privacy.plus(count.noisy_sum())


class _Run:
    """The state of one ``fit``: what the server sees, and sums for the diagnostics."""

    def __init__(self, round_: Round, rng: Randomness, secagg: Any, diagnostics: bool) -> None:
        self.round, self.rng, self.secagg = round_, rng, secagg
        p = round_.config.mechanism
        secagg.set_params(modulus=p.modulus)
        self.total = np.zeros(p.padded_dim, dtype=np.uint64)
        self.survivors: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.simulated_masks = False
        self.seconds: dict[str, float] = {}
        self.sums: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        if diagnostics:
            self.sums = np.zeros(round_.config.dim), np.zeros(round_.config.dim)
        self.norms: list[NDArray[np.float64]] = []
        self.n_nonfinite = self.n_clipped = self.n_sketch_clipped = self.n_rejected = 0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    def collect(
        self, X: Any, weights: NDArray[np.float64] | None, dropouts: Any, account: _Account
    ) -> None:
        """Encode the rows of X in blocks and aggregate the messages, charging ``account`` first."""
        n = X.shape[0]
        modulus = self.round.config.mechanism.modulus
        streaming = isinstance(self.secagg, IdealSecAgg)
        included = self._included(n, dropouts) if streaming else np.ones(n, dtype=bool)
        if streaming:
            account.open(int(included.sum()))
        kept = []
        step = self._rows_at_once(X)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            messages = self._messages(X[rows], None if weights is None else weights[rows])
            with self.timed("aggregate"):
                if streaming:
                    block = modular_sum(messages, modulus, included[rows])
                    self.total = (self.total + block) % np.uint64(modulus)
                else:
                    kept.append(messages)
        if streaming:
            self.survivors = np.flatnonzero(included)
            return
        account.open(self.round.config.mechanism.min_survivors)
        with self.timed("aggregate"):
            result = self.secagg.aggregate(
                np.concatenate(kept), dropouts, context=self.round.config.to_json().encode()
            )
        account.close(len(result.survivors))
        self.total, self.survivors = result.total, result.survivors
        self.simulated_masks = result.not_private

    def _rows_at_once(self, X: Any) -> int:
        """Return how many rows to read: sketch, rotated sketch, noise and message of each."""
        p = self.round.config.mechanism
        in_memory = isinstance(X, np.ndarray) or sp.issparse(X)
        return max(1, _BLOCK_BYTES // (32 * p.padded_dim + (0 if in_memory else 8 * X.shape[1])))

    def _included(self, n: int, dropouts: Any) -> NDArray[np.bool_]:
        """Ask ideal aggregation who stays, on messages of no content, before any is encoded."""
        empty = np.zeros((n, 1), dtype=np.uint64)
        leaves = resolve_dropouts(dropouts, n, np.random.default_rng())
        included = np.zeros(n, dtype=bool)
        included[self.secagg.aggregate(empty, leaves).survivors] = True
        return included

    def _messages(self, rows: Any, weights: NDArray[np.float64] | None) -> NDArray[np.uint64]:
        with self.timed("sketch"):
            sketches, counts = self.round.sketch(rows, weights)
        with self.timed("encode"):
            messages = self.round.mechanism.encode(sketches, self.rng)
        report = self.round.mechanism.report_
        if self.sums is not None:
            counts.add_to(*self.sums)
        self.norms.append(counts.norms)
        self.n_nonfinite += counts.n_nonfinite
        self.n_clipped += counts.n_clipped
        self.n_sketch_clipped += report.n_clipped
        self.n_rejected += report.n_rejected
        return messages

    def diagnose(
        self, sketch: NDArray[np.float64], mean: NDArray[np.float64], scale: float
    ) -> Diagnostics | None:
        """Compare with the truth, which only a simulation knows. Dropouts count as errors."""
        if self.sums is None:
            return None
        total, clipped_total = self.sums
        n = self.round.config.mechanism.n_clients
        operator = self.round.encoder.operator_
        truth, clipped = scale * total / n, scale * clipped_total / n
        true_sketch = operator.matvec(clipped)
        return Diagnostics(
            n_nonfinite=self.n_nonfinite,
            n_clipped=self.n_clipped,
            n_sketch_clipped=self.n_sketch_clipped,
            n_rejected=self.n_rejected,
            n_wrapped=self._wrapped(operator.matvec(clipped_total)),
            clipping_error=float(np.sum((clipped - truth) ** 2)),
            compression_error=float(np.sum((operator.rmatvec(true_sketch) - clipped) ** 2)),
            privatisation_error=float(np.sum((sketch - true_sketch) ** 2)),
            decoding_error=float(np.sum((mean - clipped) ** 2)),
            squared_norm=float(truth @ truth),
        )

    def _wrapped(self, true_sum: NDArray[np.float64]) -> int:
        p = self.round.config.mechanism
        rotated = true_sum
        if p.rotation != "none":
            rotated = Rotation(p.rotation, p.dim, p.seed).forward(true_sum[None, :])[0]
        off = centre(self.total, p.modulus) - rotated / p.gamma
        return int(np.sum(np.abs(off) > p.modulus / 2))


def _decoder_name(decoder: Any) -> str:
    """Return the name under which the error of a decoder is known, or its class's."""
    if isinstance(decoder, str):
        return decoder
    if not getattr(decoder, "debias", False):
        for name in PREDICTIONS:
            if type(decoder) is type(make_decoder(name)):
                return name
    return type(decoder).__name__


def _check_weights(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    weights = unit_weights(sample_weight)
    if len(weights) != n:
        raise ValueError(f"sample_weight has {len(weights)} entries for {n} clients.")
    return weights


def _inside_model_selection() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
