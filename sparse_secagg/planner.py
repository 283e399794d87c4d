"""The planner: choose encoder, decoder, sketch length m, bits b, granularity γ and noise σ.

A scheme is an encoder and a decoder; its error at ‖μ‖ = c is predicted for every m and b
(:mod:`sparse_secagg.planning`). For the linear decoder,

    E‖μ̂ − μ‖² = a·c² + d·noise_std²,   a = 0 (identity), (d−1)/m·(D−m)/(D−1) (Hadamard),
                                           (d−1)/m (count sketch), (d+1)/m (Gaussian ensemble).

The best any scheme reaches with unlimited bits is the reference; the planner takes the fewest bits
within ``1 + error_slack`` times it. Sending min(n²ε², d) coordinates without, and of the order of
s·log d with sparsity, comes out by itself (ε there is ``zcdp_epsilon``).
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from sklearn.base import clone

from sparse_secagg.encoders import LinearEncoder
from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters, get
from sparse_secagg.parameters import (
    NoiseParameters,
    RoundParameters,
    check_parameters,
    default,
    takes_round_parameters,
)
from sparse_secagg.planning.clips import JL_CLIP
from sparse_secagg.planning.laws import mean_law
from sparse_secagg.planning.noise import NoiseModel
from sparse_secagg.planning.predictions import PREDICTIONS, SPARSE_DECODERS
from sparse_secagg.planning.record import LowerBounds, Plan, SparseErrors, TradeOff
from sparse_secagg.planning.schemes import ENCODERS, Scheme
from sparse_secagg.planning.search import Choice, Search
from sparse_secagg.privacy import RoundPrivacy, Sampling
from sparse_secagg.secagg.registry import make_secagg
from sparse_secagg.sketches.lengths import resolve_n_components
from sparse_secagg.validation import check_integer, check_positive, positive

__all__ = [
    "JL_CLIP",
    "LowerBounds",
    "Plan",
    "SparseErrors",
    "TradeOff",
    "plan",
    "trade_offs",
]

#: Decoders that are tried, with a sparsity and without.
_DECODERS = ("linear",)
_DECODERS_FOR_SPARSE = ("linear", "working_set", "amp")
_ALIASES = {"lasso": "working_set"}

#: What is chosen unless it is given.
_CHOSEN = {"encoder": None, "compression": None, "n_bits": None, "decoder": None}


@takes_round_parameters(defaults=_CHOSEN)
def plan(
    d: int,
    n_clients: int,
    *,
    error_slack: float = 1.0,
    target_error: float | None = None,
    **parameters: Any,
) -> Plan:
    """Plan one round of private mean estimation.

    Of all schemes, sketch lengths and bit widths, the plan is the one of the fewest bits whose
    error at ‖μ‖ = ``clip_norm`` is within ``1 + error_slack`` of the best that any of them reaches,
    or within ``target_error``.

    Parameters
    ----------
    d, n_clients : int
        Dimension of the vectors and clients in a round.
    error_slack : float
        Accepted error over the best possible one, relative: 1 allows twice.
    target_error : float, optional
        Largest ``relative_error`` to accept, in place of ``error_slack``: a squared error over
        the square of ``clip_norm``, so that 1 is what answering zero gives.
    {parameters}

    Returns
    -------
    Plan
        The choice, with its predicted error and lower bounds; ``explain()`` says it in words.

    Raises
    ------
    InfeasibleError
        If ``n_bits`` or ``target_error`` is too small; it carries the smallest value that works.

    See Also
    --------
    SparseSecAgg.from_plan : Runs what was planned.

    Notes
    -----
    None leaves a choice to the planner. ``compression=1`` sends the vectors themselves; with
    ``compression`` given the scheme is the one of the least error, and bits, if not given, as many
    as bring it within 5 % of that of unlimited bits. All decoders but "linear" need ``sparsity``;
    "lasso" is the usual solver of the Lasso. ``layers`` and ``feedback`` do not change a plan.

    With ``prior`` the error of "amp" is state evolution with it: Groups and Previous together with
    ``sparsity``. Scores promise nothing by themselves and are planned as if they were not there. In
    place of a prior the mean itself may be given, as it is expected to be: a vector, ``f(rng, d)``
    or a distribution of scipy, each scaled to the clip; then ``sparsity`` is not needed.

    Examples
    --------
    >>> p = plan(d=1000, n_clients=1000, epsilon=1.0)
    >>> p.encoder, p.n_bits, round(p.relative_error, 3)
    ('identity', 13, 0.021)
    >>> p = plan(d=1_000_000, n_clients=1000, epsilon=1.0, delta=1e-6, n_bits=16, compression=10)
    >>> p.encoder, p.n_components, p.n_bits, round(p.bits_per_parameter, 2)
    ('hadamard', 100000, 16, 1.6)
    """
    request = _Request(RoundParameters(**parameters), d, n_clients, error_slack, target_error)
    return request.plan()


def trade_offs(d: int, n_clients: int, **request: Any) -> list[TradeOff]:
    """Return, for each scheme that :func:`plan` considers, its error against its bytes.

    Parameters
    ----------
    d, n_clients : int
        Dimension of the vectors and clients in a round.
    **request
        Other parameters of :func:`plan`. ``n_bits``, ``compression``, ``error_slack`` and
        ``target_error`` choose among the points and are not used.

    Returns
    -------
    list of TradeOff
        One curve for each pair of encoder and decoder.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    See Also
    --------
    plan : Chooses a point.

    Examples
    --------
    >>> from sparse_secagg.planner import trade_offs
    >>> curves = trade_offs(d=1000, n_clients=1000, epsilon=1.0)
    >>> "hadamard" in [curve.encoder for curve in curves]
    True
    """
    for name in ("n_bits", "compression", "error_slack", "target_error"):
        request.pop(name, None)
    parameters = RoundParameters(**{**_CHOSEN, **request})
    return _Request(parameters, d, n_clients).trade_offs()


class _Request:
    """The arguments of :func:`plan`, checked, and the parts that follow from them."""

    def __init__(
        self,
        parameters: RoundParameters,
        d: int,
        n_clients: int,
        error_slack: float = 1.0,
        target_error: float | None = None,
    ) -> None:
        check_parameters(parameters)
        self.round = parameters
        self.d = check_integer("d", _integral(d), 1)
        self.n_clients = check_integer("n_clients", _integral(n_clients), 1)
        self.clip_norm = float(positive.check("clip_norm", parameters.clip_norm))
        self.error_slack = check_positive("error_slack", error_slack)
        self.target_error = target_error
        if target_error is not None:
            check_positive("target_error", target_error)
        self.decoder = _ALIASES.get(parameters.decoder or "", parameters.decoder)
        self.law = mean_law(parameters.prior, self.d, parameters.sparsity)
        self._check_scheme()
        self._check_privacy()
        self.built = self._mechanism()
        self.built.check(self.n_clients, self.d)
        self.noise = NoiseModel(self.built, self.n_clients)
        self.search = Search(self._schemes(), self.noise)

    def _check_scheme(self) -> None:
        if self.round.sparsity is not None and not 1 <= self.round.sparsity <= self.d:
            raise ValueError(f"sparsity={self.round.sparsity} must lie between 1 and d={self.d}.")
        if self.round.encoder is not None and self.round.encoder not in ENCODERS:
            raise ValueError(
                f"encoder={self.round.encoder!r} cannot be planned; choose one of "
                f"{', '.join(ENCODERS)}."
            )
        if self.decoder is not None and self.decoder not in PREDICTIONS:
            raise ValueError(
                f"decoder={self.decoder!r} cannot be planned, for its error is not known; choose "
                f"one of {', '.join(PREDICTIONS)}."
            )
        told = self.decoder == "amp" and self.law is not None
        if self.decoder in SPARSE_DECODERS and self.round.sparsity is None and not told:
            raise ValueError(
                f"decoder={self.round.decoder!r} needs sparsity, the number of nonzero "
                "coordinates of the mean."
            )
        if self.round.encoder == "identity" and self.round.compression not in (None, 1):
            raise ValueError(
                f"compression={self.round.compression} and encoder='identity' contradict each "
                "other; leave one of them out."
            )
        if self.round.sketch_clip == "spectral" and self.round.encoder not in (
            "gaussian",
            "identity",
        ):
            raise ValueError(
                "sketch_clip='spectral' needs the largest singular value of S, which only the "
                "Gaussian ensemble offers; give encoder='gaussian', or another sketch_clip."
            )

    def _check_privacy(self) -> None:
        if self.round.population is not None and not self.round.population >= self.n_clients:
            raise ValueError(
                f"population={self.round.population} must be at least n_clients={self.n_clients}."
            )
        if self.round.observer == "release" and self.round.population is None:
            raise ValueError("observer='release' needs population, from which cohorts are sampled.")
        if self.round.mechanism not in ("ddg", "skellam"):
            raise ValueError(
                f"mechanism={self.round.mechanism!r} cannot be planned; choose 'ddg' or 'skellam'."
            )
        self.aggregation = make_secagg(self.round.secagg)
        self.survivors = self.round.min_survivors
        if self.survivors is None:
            self.survivors = self.aggregation.guaranteed_survivors(self.n_clients)

    # -- parts --------------------------------------------------------------------------------

    @property
    def sampling(self) -> Sampling | None:
        """How cohorts are drawn from the population."""
        return (
            None
            if self.round.population is None
            else Sampling(self.n_clients, int(self.round.population))
        )

    def _mechanism(self) -> IntegerMechanism:
        bits = self.round.n_bits
        shared = {item.name: getattr(self.round, item.name) for item in fields(NoiseParameters)}
        shared["min_survivors"] = self.survivors
        shared["n_bits"] = default("n_bits") if bits is None else bits
        released = self.round.observer == "release"
        return get(self.round.mechanism, **shared, sampling=self.sampling if released else None)

    def _schemes(self) -> list[Scheme]:
        encoders: tuple[str, ...] = (
            ENCODERS if self.round.encoder is None else (self.round.encoder,)
        )
        if self.round.encoder is None and self.round.compression is not None:
            encoders = ("identity",) if self.round.compression == 1 else ENCODERS[1:]
        decoders: tuple[str, ...] = (
            _DECODERS if self.round.sparsity is None else _DECODERS_FOR_SPARSE
        )
        if self.law is not None:
            decoders = ("linear", "amp")
        if self.decoder is not None:
            decoders = (self.decoder,)
        return [
            Scheme(
                encoder=encoder,
                decoder=decoder,
                d=self.d,
                norm=self.clip_norm,
                n_rows=self.round.n_rows,
                sketch_clip=self.round.sketch_clip,
                sparsity=self.round.sparsity,
                noise_limit=self.noise.limit,
                law=self.law,
            )
            for encoder in encoders
            for decoder in decoders
        ]

    # -- answers ------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan."""
        if self.round.compression is not None:
            m = resolve_n_components(self.d, None, self.round.compression)
            lengths = {scheme: scheme.at_most(m) for scheme in self.search.schemes}
            budget = None
            if self.target_error is not None:
                budget = self.target_error * self.clip_norm**2
            choice = self.search.at_length(lengths, self.round.n_bits, budget)
        else:
            choice = self._cheapest()
        return self._report(choice)

    def trade_offs(self) -> list[TradeOff]:
        """Return the curves of all schemes."""
        extra = self.aggregation.protocol_bytes(self.n_clients)
        curves = [self.search.frontier(scheme) for scheme in self.search.schemes]
        return [
            TradeOff(
                encoder=curve[0].scheme.encoder,
                decoder=curve[0].scheme.decoder,
                bytes_per_client=[-(-choice.bits // 8) + extra for choice in curve],
                relative_error=[choice.error / self.clip_norm**2 for choice in curve],
                n_components=[choice.m for choice in curve],
                n_bits=[choice.b for choice in curve],
            )
            for curve in curves
            if curve
        ]

    def _cheapest(self) -> Choice:
        best = self.search.best_error()
        if self.target_error is not None:
            budget = self.target_error * self.clip_norm**2
            if budget < best:
                least = best / self.clip_norm**2
                raise InfeasibleError(
                    f"target_error={self.target_error:.4g} is below what unlimited bits reach; "
                    f"the smallest that can be is {least:.4g}. Ask for less privacy, more clients "
                    "or a larger error.",
                    "target_error",
                    least,
                )
        elif best == 0:
            raise ValueError(
                f"noise_multiplier={self.round.noise_multiplier} leaves no error to compare "
                "that of few bits with; give target_error or compression."
            )
        else:
            budget = (1.0 + self.error_slack) * best
        choice = self.search.cheapest(budget, self.round.n_bits)
        if choice is None:
            raise self._infeasible(budget)
        return choice

    def _infeasible(self, budget: float) -> InfeasibleError:
        asked = 0 if self.round.n_bits is None else self.round.n_bits
        name = "no modulus" if self.round.n_bits is None else f"n_bits={self.round.n_bits}"
        more = self.search.fewest_bits(budget, asked)
        if more is None:
            return InfeasibleError(
                f"{name} can bring the error within {budget:.4g}, and no other width up to "
                f"{self.noise.max_bits} can; give compression, or accept a larger error.",
                "n_bits",
                self.noise.max_bits + 1,
            )
        return InfeasibleError(
            f"{name} cannot bring the error within {budget:.4g}; the smallest that can is {more}. "
            "With compression given, fewer may do.",
            "n_bits",
            more,
        )

    def _report(self, choice: Choice) -> Plan:
        scheme, m = choice.scheme, choice.m
        factor = scheme.factor(m)
        self.built.set_params(n_bits=choice.b, clip_norm=factor * self.clip_norm)
        parameters = self.built.calibrate(self.n_clients, m)
        noise_std = self.built.noise_std(self.n_clients)
        return _make_plan(
            scheme,
            m=m,
            factor=factor,
            parameters=parameters,
            noise_std=noise_std,
            privacy=self.built.privacy(sampling=self.sampling),
            rounds=self.round.rounds,
            central_std=self._central_std(),
            noise_limit=self.noise.limit,
            aggregation=self.aggregation,
            mechanism=clone(self.built),
            prior=self.round.prior if hasattr(self.round.prior, "refine") else None,
        )

    def _central_std(self) -> float:
        """Return the noise of a trusted server: that of all clients' shares, on one coordinate."""
        shares = self.built.parameters_.noise_shares
        return self.clip_norm * math.sqrt(self.noise.limit * shares / self.n_clients)


def _make_plan(
    scheme: Scheme,
    *,
    m: int,
    factor: float,
    parameters: MechanismParameters,
    noise_std: float,
    privacy: RoundPrivacy,
    rounds: int,
    central_std: float,
    noise_limit: float,
    aggregation: Any,
    mechanism: IntegerMechanism | None,
    prior: Any = None,
) -> Plan:
    """Put a plan together from a scheme and its calibrated noise."""
    d, c, n, s = scheme.d, scheme.norm, parameters.n_clients, scheme.sparsity
    decoding = PREDICTIONS[scheme.decoder](scheme.situation(m, noise_std))
    error = decoding + scheme.clipping_error(m, factor) * c**2
    z = parameters.noise_multiplier
    n2e2 = (n / z) ** 2 if z else math.inf  # the paper's n²ε²
    k = d if scheme.decoder not in SPARSE_DECODERS else s or d
    return Plan(
        d=d,
        n_clients=n,
        clip_norm=c,
        privacy=privacy,
        rounds=rounds,
        encoder=scheme.encoder,
        decoder=scheme.decoder,
        n_components=m,
        n_rows=min(scheme.n_rows, m) if scheme.encoder == "count_sketch" else None,
        sketch_clip="spectral" if scheme.sketch_clip == "spectral" else factor,
        parameters=parameters,
        noise_std=noise_std,
        predicted_mse=error,
        compression_mse=scheme.unsketch_error(m) * c**2,
        noise_mse=d * noise_std**2,
        central_mse=d * central_std**2,
        noise_mse_limit=d * (factor * c) ** 2 * noise_limit,
        sparsity=s,
        sparse_mse=None if s is None else _sparse_errors(d, s, m, noise_std),
        lower_bound_bits=LowerBounds(
            general=max(k / 2 * math.log2(c * c / error), 1.0),
            unbiased_order=min(n2e2, float(k)),
        ),
        secagg=aggregation.name,
        threshold=getattr(aggregation, "threshold", None),
        neighbors=getattr(aggregation, "neighbors", None),
        protocol_bytes=aggregation.protocol_bytes(n),
        mechanism=mechanism,
        prior=prior,
    )


def describe_round(
    parameters: RoundParameters,
    *,
    encoder: LinearEncoder,
    encoder_name: str,
    decoder: str,
    calibrated: MechanismParameters,
    clip_norm: float,
    privacy: RoundPrivacy,
    noise_std: float,
    mechanism: IntegerMechanism | None = None,
) -> Plan:
    """Return the plan that a round whose parts are at hand amounts to.

    Parameters
    ----------
    parameters : RoundParameters
        Of the round: its secure aggregation and sparsity are used.
    encoder : LinearEncoder
        Fitted.
    encoder_name, decoder : str
        Their names. Errors are predicted for the linear decoder where that of ``decoder`` is not
        known.
    calibrated : MechanismParameters
        Of the round.
    clip_norm : float
        The clients' clip.
    privacy : RoundPrivacy
        What the round revealed.
    noise_std : float
        Noise in each coordinate of the mean sketch.
    mechanism : IntegerMechanism, optional
        With its target, for a round that is still to come.
    """
    sparsity = parameters.sparsity
    known = decoder in PREDICTIONS and (decoder == "linear" or sparsity is not None)
    central = calibrated.mechanism == "central"
    z, n = calibrated.noise_multiplier, calibrated.n_clients
    limit = (noise_std / calibrated.clip_norm) ** 2
    if not central:
        limit = z * z / (calibrated.noise_shares * privacy.n_survivors)
    scheme = Scheme(
        encoder=encoder_name,
        decoder=decoder if known else "linear",
        d=encoder.n_features_in_,
        norm=float(clip_norm),
        n_rows=getattr(encoder, "n_rows_", 1),
        sketch_clip=calibrated.clip_norm / clip_norm,
        sparsity=sparsity,
        noise_limit=limit,
        known_unsketch_error=encoder.unsketch_error(),
        law=mean_law(parameters.prior, encoder.n_features_in_, sparsity),
    )
    return _make_plan(
        scheme,
        m=encoder.n_components_,
        factor=calibrated.clip_norm / clip_norm,
        parameters=calibrated,
        noise_std=noise_std,
        privacy=privacy,
        rounds=parameters.rounds,
        central_std=clip_norm * z / n,
        noise_limit=limit,
        aggregation=make_secagg(parameters.secagg),
        mechanism=mechanism,
        prior=parameters.prior,
    )


def _integral(value: Any) -> Any:
    """Return numbers like 1e6 as the integers they are."""
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value


def _sparse_errors(d: int, s: int, m: int, noise_std: float) -> SparseErrors:
    return SparseErrors(
        lasso=s * noise_std**2 * (2.0 * math.log(d) + 1.0),
        least_squares=s * noise_std**2 / (1 - s / m) if s < m else math.inf,
    )
