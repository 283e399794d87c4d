"""What may be known about x before it is measured: side information for message passing.

A prior turns a denoiser into one that uses what is known,

    refine(denoiser) -> denoiser

and any object with that method is a prior. Everything it holds must be public, or have been paid
for: scores of another corpus, the shapes of layers, the release of an earlier round.

    solvers.get("amp", prior=solvers.priors.Scores(scores)).fit(A, y, noise_std=sigma)
    solvers.get("amp", denoiser="positive", prior=solvers.priors.Groups(labels=labels))

To predict what a prior is worth before there is a mean, it may also have
``draw(rng, d, sparsity)``, a mean as it takes it to be, and ``about(x, rng)``, the prior as it
would be for the mean x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.amp.layers import restricted, rows_of
from solvers.amp.scalar import Denoised, Denoiser, Scales, Sparse, scales_of, weighed
from solvers.amp.shared_scale import SharedScale

__all__ = ["Groups", "Previous", "Prior", "Scores", "refined"]

#: Entries in the first group of best scores; each group after it is twice as large.
_FIRST_GROUP = 16

#: Gain in log-likelihood for which two neighbouring groups have priors of their own. Splitting
#: entries of the same law gains about 1.
_GAIN_OF_A_SPLIT = 4.0

#: Precision of a log-likelihood that decides on a split, and the nodes that it is made of: every
#: fourth.
_ROUGHLY = 0.1
_COARSER = 4

#: An earlier estimate counts as significant beyond this many standard errors.
_SIGNIFICANT = 4.0


@runtime_checkable
class Prior(Protocol):
    """What message passing asks of side information.

    See Also
    --------
    Groups, Previous, Scores : Those that are built in.

    Examples
    --------
    >>> import solvers
    >>> isinstance(solvers.priors.Groups(labels=[0, 0, 1]), solvers.priors.Prior)
    True
    """

    def refine(self, denoiser: Denoiser) -> Denoiser:
        """Return a denoiser that does what this one does, and uses what is known of x."""
        ...


def refined(denoiser: Denoiser, prior: Prior | None) -> Denoiser:
    """Return the denoiser that uses a prior; without one, the denoiser as it is.

    Parameters
    ----------
    denoiser : Denoiser
        What is expected of the entries.
    prior : Prior or None
        What is known of them beforehand.

    Returns
    -------
    Denoiser
        One that uses the prior.

    See Also
    --------
    Prior : The contract.

    Examples
    --------
    >>> from solvers.denoisers import Sparse
    >>> from solvers.priors import refined
    >>> refined(Sparse(), None)
    Sparse(positive=False)
    """
    if prior is None:
        return denoiser
    if not isinstance(prior, Prior):
        raise ValueError(
            f"prior={prior!r} has no method refine(denoiser); pass one of solvers.priors, or an "
            "object that has it."
        )
    return prior.refine(denoiser)


def _sparse(denoiser: Denoiser, prior: str) -> Sparse:
    if not isinstance(denoiser, Sparse):
        raise ValueError(
            f'denoiser={denoiser!r} cannot be combined with {prior}, which needs "sparse" or '
            '"positive"; for other denoisers give it refine(denoiser) of your own.'
        )
    return denoiser


def _check_length(name: str, n: int, d: int) -> None:
    if n != d:
        raise ValueError(f"{name} has {n} entries, but the vector has {d}; give one per entry.")


# --- scores -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scores:
    """A public score for each entry: the higher, the larger its magnitude may be.

    Entries are sorted by score into groups of doubling size, 16, 32, 64, …, equal scores
    staying together, and each group learns a prior of its own; neighbours whose entries follow
    the same law, by their likelihood, are merged. Only the order of the scores counts, so ranks
    do, and counts of another corpus. Scores that say nothing cost nothing: all groups merge.

    Parameters
    ----------
    scores : array-like of shape (d,)
        Any numbers; only their order counts.

    See Also
    --------
    Groups : Where entries are active together.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> x = np.zeros(2000)
    >>> x[:40] = rng.standard_normal(40)
    >>> A = rng.standard_normal((150, 2000)) / np.sqrt(150)
    >>> y = A @ x + 0.05 * rng.standard_normal(150)
    >>> prior = solvers.priors.Scores(-np.arange(2000))  # the first entries are the likely ones
    >>> blind = solvers.get("amp").fit(A, y, noise_std=0.05).coef_
    >>> told = solvers.get("amp", prior=prior).fit(A, y, noise_std=0.05).coef_
    >>> bool(np.sum((told - x) ** 2) < 0.5 * np.sum((blind - x) ** 2))
    True
    """

    scores: ArrayLike
    _group: NDArray[np.int8] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 1 or len(scores) == 0 or np.isnan(scores).any():
            raise ValueError(
                f"scores has shape {scores.shape}; pass one number for each entry, not NaN."
            )
        object.__setattr__(self, "_group", _doubling_groups(scores))

    def refine(self, denoiser: Denoiser) -> Denoiser:
        """Return a denoiser with a prior for each group of scores."""
        return _Grouped(self._group, _sparse(denoiser, "Scores").positive)


def _doubling_groups(scores: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return the group of each entry; groups double in size and do not part equal scores."""
    from solvers.amp import _kernels as kernels

    d, starts = len(scores), [_FIRST_GROUP]
    while starts[-1] < d:
        starts.append(2 * starts[-1] + _FIRST_GROUP)
    starts.pop()
    if not starts:
        return np.zeros(d, dtype=np.int8)
    ranked = np.sort(scores)
    least = []  # lowest score of each group but the last, from the best group on
    for start in starts:
        value = ranked[d - 1 - start]
        better = d - int(np.searchsorted(ranked, value, side="right"))
        first = d - int(np.searchsorted(ranked, value))
        # equal scores stay together, on the nearer side of the border
        if start - better <= first - start:
            if better:
                least.append(ranked[d - better])
        elif first < d:
            least.append(value)
    return np.asarray(kernels.n_above(scores, np.unique(least)))


@dataclass(frozen=True, eq=False)
class _Grouped:
    """A sparse prior for each group of entries; groups of the same law share it."""

    group: NDArray[np.int8]
    positive: bool

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        from solvers.amp import _kernels as kernels

        _check_length("scores", len(self.group), len(p))
        n_groups = int(self.group.max()) + 1
        grid = kernels.nodes()
        counts = np.zeros((n_groups, 2, len(grid)))
        kernels.bin_groups(p, tau, grid, self.group, counts)
        scales = scales_of(grid, counts, self.positive)
        parts = _merged(kernels.coarsened(counts, grid, _COARSER), scales.every(_COARSER))
        tables = np.empty((n_groups, 2, len(grid)))
        evidence = -_GAIN_OF_A_SPLIT * (len(parts) - 1)
        for part in parts:
            number = counts[part.start : part.stop].sum(axis=0)
            learnt = scales.learn(number, part.weights)
            tables[part.start : part.stop] = scales.two_sides(learnt.means)
            evidence += learnt.evidence
        slopes = np.diff(tables, axis=2) / np.diff(grid)
        estimate = np.empty_like(p)
        divergence = kernels.apply_tables(p, tau, grid, self.group, tables, slopes, estimate)
        return weighed(Denoised(estimate, float(divergence)), tau, evidence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoiser of some of the entries."""
        _check_length("scores", len(self.group), d)
        numbers = np.unique(self.group[features], return_inverse=True)[1]
        return _Grouped(numbers.astype(np.int8).ravel(), self.positive)


@dataclass(frozen=True)
class _Part:
    """Neighbouring groups start … stop − 1 that share a prior: its weights and its evidence."""

    start: int
    stop: int
    counts: NDArray[np.float64]
    weights: NDArray[np.float64]
    evidence: float


def _merged(counts: NDArray[np.float64], scales: Scales) -> list[_Part]:
    """Merge neighbours, the most alike first, until each split gains enough likelihood."""
    pooled = scales.fit(counts.sum(axis=0), _ROUGHLY / counts.sum())[0]
    # what all entries together do not need, their parts hardly do
    needed = pooled > 1e-12
    needed |= np.append(needed[1:], False) | np.append(False, needed[:-1])
    needed[0] = True
    few = scales.only(needed)

    def part(
        start: int,
        stop: int,
        number: NDArray[np.float64],
        near: NDArray[np.float64],
        enough: float = -math.inf,
    ) -> _Part:
        tolerance = _ROUGHLY / number.sum()
        few_weights, evidence = few.fit_roughly(number, tolerance, near[needed], enough)
        weights = np.zeros(len(needed))
        weights[needed] = few_weights
        return _Part(start, stop, number, weights, evidence)

    def together(left: _Part, right: _Part) -> _Part:
        number = left.counts + right.counts
        share = left.counts.sum() / number.sum()
        near = share * left.weights + (1.0 - share) * right.weights
        enough = left.evidence + right.evidence - _GAIN_OF_A_SPLIT  # to be merged
        return part(left.start, right.stop, number, near, enough)

    parts = [part(g, g + 1, each, pooled) for g, each in enumerate(counts)]
    joint = [together(left, right) for left, right in itertools.pairwise(parts)]
    while joint:
        gains = [
            left.evidence + right.evidence - both.evidence
            for left, right, both in zip(parts, parts[1:], joint)
        ]
        k = int(np.argmin(gains))
        if gains[k] > _GAIN_OF_A_SPLIT:
            break
        parts[k : k + 2] = [joint[k]]
        joint[k : k + 1] = []
        if k > 0:
            joint[k - 1] = together(parts[k - 1], parts[k])
        if k < len(joint):
            joint[k] = together(parts[k], parts[k + 1])
    return parts


# --- groups -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Groups:
    """Entries that are active together, with a scale that they share: rows of an embedding.

    A group is zero, or its entries are normal (half-normal, where x ≥ 0) with one variance; how
    many groups have which variance is learnt.

    Parameters
    ----------
    labels : array-like of shape (d,), optional
        Entries of equal label form a group.
    shapes : sequence of tuples, optional
        Shapes of the layers, in the order of the flat vector: the groups are the rows of each
        matrix, its entries of equal first index. Entries of vectors, and those that the shapes do
        not cover, stand alone.

    Raises
    ------
    ValueError
        If neither or both of labels and shapes are given.

    See Also
    --------
    Scores : Where entries are ranked, not grouped.

    Examples
    --------
    >>> import solvers
    >>> prior = solvers.priors.Groups(shapes=[(3, 2)])
    >>> hasattr(prior.refine(solvers.denoisers.Sparse()), "denoise")
    True
    """

    labels: ArrayLike | None = None
    shapes: Sequence[tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        if (self.labels is None) == (self.shapes is None):
            raise ValueError("Groups takes either labels or shapes; give one of them.")
        if self.labels is not None and np.ndim(self.labels) != 1:
            raise ValueError(
                f"labels has shape {np.shape(self.labels)}; pass one label for each entry."
            )

    def refine(self, denoiser: Denoiser) -> Denoiser:
        """Return a denoiser with one scale for each group."""
        return _ByGroup(self, _sparse(denoiser, "Groups").positive)

    def draw(self, rng: np.random.Generator, d: int, sparsity: int) -> NDArray[np.float64]:
        """Draw a mean with about so many nonzero entries, normal ones in groups that are active."""
        group = self.group_of(d)
        order = rng.permutation(int(group.max()) + 1)
        entries = np.cumsum(np.bincount(group)[order])
        active = np.zeros(len(order), dtype=bool)
        active[order[: int(np.argmin(np.abs(entries - sparsity))) + 1]] = True
        return np.where(active[group], rng.standard_normal(d), 0.0)

    def group_of(self, d: int) -> NDArray[np.int64]:
        """Return the number of the group of each of d entries."""
        if self.labels is not None:
            labels = np.asarray(self.labels)
            _check_length("labels", len(labels), d)
            return np.unique(labels, return_inverse=True)[1].astype(np.int64).ravel()
        assert self.shapes is not None
        parts, total = [], 0
        for shape in self.shapes:
            parts.append(rows_of(shape))
            total += len(parts[-1])
        if total > d:
            raise ValueError(
                f"shapes={list(self.shapes)!r} hold {total} entries, but the vector has {d}; "
                "give the shapes of its layers, in order."
            )
        parts.append(np.arange(d - total))
        offsets = np.cumsum([0, *[int(part[-1]) + 1 if len(part) else 0 for part in parts]])
        return np.concatenate([part + offset for part, offset in zip(parts, offsets)])


@dataclass(frozen=True, eq=False)
class _ByGroup:
    """A shared scale whose groups follow once the length of the vector is known."""

    groups: Groups
    positive: bool

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        return SharedScale(self.groups.group_of(len(p)), self.positive).denoise(p, tau)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoiser of some of the entries."""
        return SharedScale(self.groups.group_of(d), self.positive).part(features, d)


# --- an earlier round -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Previous:
    """An earlier unbiased estimate of the same mean, or of one that has moved since.

    It is averaged with the pseudo-data by their variances. How far the mean has moved is learnt
    from the difference of the two, apart for entries that were significant and those that were
    not; an estimate of something else ends up with no weight.

    Parameters
    ----------
    estimate : array-like of shape (d,)
        Unbiased: debiased message passing, or the linear decoder; of a biased one ``std_err_`` is
        None.
    std_err : float or array-like of shape (d,)
        Its standard error; of an array the root mean square is taken.

    See Also
    --------
    solvers.decode_jointly : Where the earlier sketch is at hand.

    Examples
    --------
    >>> import solvers
    >>> prior = solvers.priors.Previous([0.1, 0.0, -0.2], std_err=0.05)
    >>> hasattr(prior.refine(solvers.denoisers.Sparse()), "denoise")
    True
    """

    estimate: ArrayLike
    std_err: Any

    def __post_init__(self) -> None:
        estimate = np.asarray(self.estimate, dtype=np.float64)
        if estimate.ndim != 1 or not len(estimate) or not np.isfinite(estimate).all():
            raise ValueError(f"estimate has shape {estimate.shape}; pass a finite vector (d,).")
        if self.std_err is None:
            raise ValueError(
                "std_err=None: the earlier estimate is biased; decode it with debias=True."
            )
        std_err = np.asarray(self.std_err, dtype=np.float64)
        if not (np.isfinite(std_err).all() and (std_err > 0).all()):
            raise ValueError(f"std_err={self.std_err!r} must be finite and > 0.")

    def about(self, x: NDArray[np.float64], rng: np.random.Generator) -> Previous:
        """Return an earlier estimate of x, as sure as this one."""
        noise = np.asarray(self.std_err, dtype=np.float64) * rng.standard_normal(len(x))
        return Previous(x + noise, self.std_err)

    def refine(self, denoiser: Denoiser) -> Denoiser:
        """Return a denoiser of the average of the pseudo-data and the earlier estimate."""
        estimate = np.asarray(self.estimate, dtype=np.float64)
        variances = np.square(np.asarray(self.std_err, dtype=np.float64))
        return _WithPrevious(estimate, np.broadcast_to(variances, estimate.shape), denoiser)


@dataclass(frozen=True, eq=False)
class _WithPrevious:
    """Denoise the average of p and an earlier estimate.

    Entries of different weights would have different noise, which a denoiser cannot use: the part
    of the earlier estimate with less weight is taken with that weight in all entries, unless it
    is none.
    """

    estimate: NDArray[np.float64]
    variances: NDArray[np.float64]
    denoiser: Denoiser

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        _check_length("estimate", len(self.estimate), len(p))
        share = self._share_of_p(p, tau)
        dtype = p.dtype.type
        mean = dtype(share) * p + dtype(1.0 - share) * self.estimate.astype(p.dtype, copy=False)
        found = self.denoiser.denoise(mean, tau * math.sqrt(share))
        return Denoised(found.estimate, share * found.divergence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoiser of some of the entries."""
        _check_length("estimate", len(self.estimate), d)
        inner = restricted(self.denoiser, features, d)
        return _WithPrevious(self.estimate[features], self.variances[features], inner)

    def _share_of_p(self, p: NDArray[np.floating], tau: float) -> float:
        variance = float(np.mean(self.variances))
        difference = np.square(p - self.estimate)
        significant = np.abs(self.estimate) > _SIGNIFICANT * math.sqrt(variance)
        shares = []
        for part in (significant, ~significant):
            if part.any():
                # Var(p − estimate) = τ² + variance + movement²
                excess = float(np.mean(difference[part])) - tau**2
                shares.append(max(excess, variance) / (tau**2 + max(excess, variance)))
        return max(shares)
