"""The rounds of private counts and their shares of ε, composed by their Rényi curves.

A share w of the budget means noise z/√w, where z is the noise multiplier that alone meets (ε, δ).
The last round is sized so that the sum of all curves, as they really are, meets the target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import solvers
from solvers import denoisers
from solvers.priors import refined
from sparse_secagg.encoders import CountSketchEncoder
from sparse_secagg.mechanisms.base import gaussian_multiplier
from sparse_secagg.parameters import default
from sparse_secagg.planner import plan
from sparse_secagg.privacy.conversion import rdp_to_dp, rdp_to_zcdp
from sparse_secagg.privacy.curves import DEFAULT_ORDERS, sensitivity_factor
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.round.spec import RoundSpec

__all__ = [
    "Account",
    "Stage",
    "check_prior",
    "count_stage",
    "privacy_of",
    "shares_of",
    "size_stage",
    "vote_stage",
]

#: Share of the budget for choosing ``max_items``; of the rest, share of the first of two rounds.
_SIZE_SHARE, _CELL_SHARE = 0.05, 0.45
#: A coordinate of a short message may have this many bits: they cost nothing beside a sketch.
_SHORT_BITS = 32
#: Sketch lengths spread by 1/√(2m); so many deviations are let through, since a sketch that is
#: clipped makes all counts too small.
_SKETCH_DEVIATIONS = 2.5
#: Measurements per nonzero entry that the planner of bits assumes.
_MEASUREMENTS_PER_ENTRY = 60
#: Steps in which the noise of the last round grows until the promise is met.
_STEP = 1.0005


def shares_of(limit_given: bool, open_domain: bool) -> dict[str, float]:
    """Return the share of the budget of each stage, in order."""
    sizes = 0.0 if limit_given else _SIZE_SHARE
    names = (1 - sizes) * (1 - _CELL_SHARE) if open_domain else 0.0
    shares = {"sizes": sizes, "counts": 1 - sizes - names, "names": names}
    return {stage: share for stage, share in shares.items() if share}


@dataclass(frozen=True)
class Stage:
    """One round: its name, its spec, and the length of the users' vectors."""

    name: str
    spec: RoundSpec
    dim: int


@dataclass
class Account:
    """What the rounds may cost together, and what those behind us did."""

    epsilon: float
    delta: float
    privacies: list[RoundPrivacy] = field(default_factory=list)

    def multiplier(self, share: float, adjacency: str) -> float:
        """Return z for a share of the budget."""
        z = gaussian_multiplier(self.epsilon, self.delta, 1) * sensitivity_factor(adjacency)
        return z / math.sqrt(share)

    def add(self, privacy: RoundPrivacy) -> None:
        """Note the cost of a round that was run."""
        self.privacies.append(privacy)

    def total(self, *more: RoundPrivacy) -> float:
        """Return ε of the rounds so far, and of ``more``."""
        rounds = [*self.privacies, *more]
        rdp = np.sum([privacy.rdp(DEFAULT_ORDERS) for privacy in rounds], axis=0)
        return rdp_to_dp(
            DEFAULT_ORDERS, rdp, self.delta, sum(privacy.total_variation for privacy in rounds)
        )

    def zcdp_total(self) -> float:
        """Return the paper's ε of the rounds so far."""
        rdp = np.sum([privacy.rdp(DEFAULT_ORDERS) for privacy in self.privacies], axis=0)
        return rdp_to_zcdp(DEFAULT_ORDERS, rdp)

    def last(self, stage: Stage, n: int) -> Stage:
        """Return the stage with the least noise that keeps all rounds within the promise."""
        if not self.privacies:
            return Stage(
                stage.name,
                stage.spec.replace(epsilon=self.epsilon, noise_multiplier=None),
                stage.dim,
            )
        spec = stage.spec
        while self.total(privacy_of(spec, stage.dim, n)) > self.epsilon:
            assert spec.noise_multiplier is not None
            spec = spec.replace(noise_multiplier=_STEP * spec.noise_multiplier)
        return Stage(stage.name, spec, stage.dim)


def privacy_of(spec: RoundSpec, d: int, n: int) -> RoundPrivacy:
    """Return what a round of n vectors of length d costs; raise if it cannot be calibrated."""
    encoder = spec.make_encoder().fit_dimension(d)
    mechanism = spec.make_mechanism(n)
    mechanism.calibrate(n, encoder.n_components_)
    return mechanism.privacy()


def size_stage(base: RoundSpec, z: float, n_bins: int) -> Stage:
    """Return the round that counts how many items users hold."""
    return Stage("sizes", _plain(base, z, 1.0, _SHORT_BITS), n_bins)


def vote_stage(base: RoundSpec, z: float, n: int, votes: int, n_bits: int, cells: int) -> Stage:
    """Return the round of votes on the bits of names."""
    d = cells * n_bits
    spec = _plain(base, z, math.sqrt(votes * n_bits), base.n_bits).replace(beta=default("beta"))
    return Stage("names", spec.replace(n_bits=base.n_bits or _bits(spec, d, n)), d)


def count_stage(
    base: RoundSpec,
    z: float,
    d: int,
    n: int,
    clip_norm: float,
    max_bytes: int,
    weighted: bool = False,
) -> Stage:
    """Return the round of the counts: unsketched where that fits, or the longest count sketch.

    Parameters
    ----------
    base : RoundSpec
        What all rounds share; ``compression`` and ``n_bits`` are chosen where they are None.
    z : float
        Noise multiplier.
    d, n : int
        Columns of the domain, and users.
    clip_norm : float
        Norm of a user's vector, at most.
    max_bytes : int
        Of a message.
    weighted : bool
        Whether d sums of numbers, which may be negative, come after the d counts.
    """
    denoiser, prior = _knowledge(base.prior, d, weighted)
    d = 2 * d if weighted else d
    spec = _plain(base, z, clip_norm, base.n_bits)
    if base.compression == 1 or (base.compression is None and d <= 8 * max_bytes):
        bits = base.n_bits or _bits(spec, d, n)
        if base.compression == 1 or d * bits <= 8 * max_bytes:
            return Stage("counts", spec.replace(n_bits=bits), d)
    spec = spec.replace(beta=default("beta"))  # a long sketch stays away from its bound
    m, bits = _sketch_size(spec, base, d, n, max_bytes)
    decoder = solvers.get("amp", denoiser=denoiser, debias=True)
    sketched = spec.replace(
        encoder=CountSketchEncoder(n_components=m, n_rows=min(base.n_rows, m)),
        n_bits=bits,
        sketch_clip=1.0 + _SKETCH_DEVIATIONS / math.sqrt(2 * m),
        decoder=decoder,
        prior=prior,
    )
    return Stage("counts", sketched, d)


def _knowledge(prior: Any, d: int, weighted: bool) -> tuple[Any, Any]:
    """Return the denoiser of counts, or of counts and sums, and the prior that is left for it."""
    if not weighted:
        return "positive", prior
    # one prior for both halves: what is common tends to have a large sum
    halves = {"counts": slice(0, d), "sums": slice(d, 2 * d)}
    kinds = {"counts": denoisers.Sparse(positive=True), "sums": denoisers.Sparse()}
    informed = {name: refined(kind, prior) for name, kind in kinds.items()}
    return denoisers.Blocks(halves, informed), None


def check_prior(stage: Stage, prior: Any, d: int) -> None:
    """Raise for a prior that the round of counts cannot use, before anything is charged."""
    if prior is None:
        return
    name = type(prior).__name__
    if stage.spec.encoder == "identity":
        raise ValueError(
            f"prior={name} would have no effect: the {stage.dim:,} counts fit into a message and "
            "are not sketched. Leave it out, or sketch with compression= or fewer max_bytes."
        )
    # any pseudo-data will do to see whether the prior fits the domain
    anything = np.random.default_rng(0).standard_normal(d)
    refined(denoisers.Sparse(positive=True), prior).denoise(anything, 1.0)


def _plain(base: RoundSpec, z: float, clip_norm: float, n_bits: int | None) -> RoundSpec:
    return base.replace(
        encoder="identity",
        compression=1,
        decoder="linear",
        prior=None,
        clip_norm=clip_norm,
        noise_multiplier=z,
        # conditional rounding would shorten vectors of few coordinates, all of which end at the
        # clip: counts would be too small by a standard error
        beta=0.0,
        n_bits=_SHORT_BITS if n_bits is None else n_bits,
    )


def _sketch_size(
    spec: RoundSpec, base: RoundSpec, d: int, n: int, max_bytes: int
) -> tuple[int, int]:
    """Return the length of the sketch and the bits of a coordinate."""
    rows = min(base.n_rows, d)

    def length(bits: int) -> int:
        if base.compression:
            return max(rows, rows * int(d / base.compression / rows))
        most = 8 * max_bytes // bits // 2 * 2  # the rotation pads odd lengths by one
        return max(rows, rows * (min(d, most) // rows))

    bits = base.n_bits or 20
    for _ in range(4):
        m = length(bits)
        needed = base.n_bits or _bits(
            spec, d, n, encoder="count_sketch", compression=d / m, decoder="amp",
            sparsity=max(1, m // _MEASUREMENTS_PER_ENTRY), n_rows=rows,
        )  # fmt: skip
        if needed == bits:
            break
        bits = needed
    return length(bits), bits


def _bits(spec: RoundSpec, d: int, n: int, **scheme: Any) -> int:
    """Return the bits at which the noise is close to that of unlimited bits."""
    mechanism = spec.mechanism if spec.mechanism in ("ddg", "skellam") else "ddg"
    request: dict[str, Any] = {
        "encoder": "identity", "compression": 1, "decoder": "linear", **scheme,
        "noise_multiplier": spec.noise_multiplier, "mechanism": mechanism,
        "adjacency": spec.adjacency, "colluders": spec.colluders, "secagg": spec.secagg,
        "min_survivors": spec.min_survivors, "delta": spec.delta, "beta": spec.beta,
    }  # fmt: skip
    return int(plan(d, n, n_bits=None, clip_norm=1.0, **request).n_bits)
