"""PrivateRound: all parties of a round in one process.

Blocks of rows are clipped, sketched, encoded and added to the secure sum, here or by workers
(:mod:`~sparse_secagg.round.cohort`). The ledger is charged before the first message is made, for
the survivors that are certain; what the round really cost replaces the charge once they are known.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.privacy.ledger import Ledger
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.privacy.sampling import Sampling
from sparse_secagg.round.aggregate import Aggregate, privacy_of_round
from sparse_secagg.round.clipping import AdaptiveClip
from sparse_secagg.round.cohort import Cohort, Rows
from sparse_secagg.round.diagnostics import Witness
from sparse_secagg.round.feedback import ThresholdFeedback
from sparse_secagg.round.parts import Round
from sparse_secagg.secagg.contract import Aggregation, SecureAggregation
from sparse_secagg.secagg.result import AggregationResult

__all__ = ["Account", "PrivateRound", "continued", "open_ledger"]


@dataclass
class PrivateRound:
    """One round over the rows of a matrix.

    Attributes
    ----------
    parts : Round
        Encoder and mechanism at work.
    secagg : SecureAggregation
        Adds the messages.
    rng : Randomness
        Private randomness of all parties.
    ledger : Ledger, optional
        Charged before anything leaves.
    sampling : Sampling, optional
        How the cohort was drawn.
    clip : AdaptiveClip, optional
        Moved by the round.
    feedback : ThresholdFeedback, optional
        Applied to the sketch.
    decoder, prior : object
        What the aggregate decodes with by default.
    simulated : bool
        Whether ``rng`` is predictable.
    witness : Witness, optional
        Sees the clients' data, for diagnostics.
    progress : callable, optional
        Called with the numbers of clients encoded and of all clients.
    """

    parts: Round
    secagg: SecureAggregation
    rng: Randomness
    decoder: Any
    ledger: Any = None
    sampling: Sampling | None = None
    clip: AdaptiveClip | None = None
    feedback: ThresholdFeedback | None = None
    prior: Any = None
    simulated: bool = False
    witness: Witness | None = None
    progress: Callable[[int, int], object] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def run(
        self, rows: Rows, weights: NDArray[np.float64] | None = None, dropouts: Any = None
    ) -> Aggregate:
        """Run the round over the rows, one a client, and return what the server has then."""
        account = Account(self.ledger, self.parts, self.clip, self.sampling)
        summed, norms = self._collect(rows, weights, dropouts, account)
        if self.clip is not None:
            # only survivors' bits, and their noise, can be counted on
            self._move_clip(self.clip, norms[summed.survivors])
        return self._decode(summed, weights, account.privacy)

    def _collect(
        self, rows: Rows, weights: NDArray[np.float64] | None, dropouts: Any, account: Account
    ) -> tuple[AggregationResult, NDArray[np.float64]]:
        """Encode the rows in blocks and add them up; return the sum and the norms of the rows."""
        p = self.parts.config.mechanism
        adding = self.secagg.begin(
            rows.shape[0],
            p.padded_dim,
            modulus=p.modulus,
            dropouts=dropouts,
            context=self.parts.config.to_json().encode(),
        )
        rows.check()
        account.open(adding)
        cohort = Cohort(
            self.parts, self.rng, weights, adding.included, self.witness is not None, self.progress
        )
        norms = []
        for encoded in rows.encode(cohort):
            norms.append(encoded.norms)
            if self.witness is not None and encoded.seen is not None:
                self.witness.seen += encoded.seen
            for stage, spent in encoded.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
            with self._timed("aggregate"):
                if encoded.summed:
                    adding.add_sum(encoded.messages[0], len(encoded.norms))
                else:
                    adding.add(encoded.messages)
        with self._timed("aggregate"):
            summed = adding.finish()
        account.close(summed.n_survivors)
        return summed, np.concatenate(norms)

    def _move_clip(self, clip: AdaptiveClip, norms: NDArray[np.float64]) -> None:
        p = self.parts.config.mechanism
        colluders = min(p.colluders, len(norms) - 1)
        clip.update(norms, self.rng, adjacency=p.adjacency, colluders=colluders)

    def _decode(
        self,
        summed: AggregationResult,
        weights: NDArray[np.float64] | None,
        privacy: RoundPrivacy,
    ) -> Aggregate:
        """Turn the modular sum into the noisy mean sketch."""
        k = summed.n_survivors
        scale = 1.0 if weights is None else k / weights[summed.survivors].sum()
        with self._timed("decode sum"):
            sketch = scale * self.parts.decode(summed.total, k, self.rng)
        if self.feedback is not None:
            sketch = self.feedback.apply(sketch)
        if self.witness is not None:
            self.witness.see_sum(summed.total, scale)
        noiseless = not self.parts.config.mechanism.variance
        return Aggregate(
            config=self.parts.config,
            sketch=sketch,
            operator=self.parts.encoder.operator_,
            noise_std=float(scale * self.parts.mechanism.noise_std(k)),
            privacy=privacy,
            survivors=summed.survivors,
            bytes_per_client=int(summed.bytes_up.max(initial=0)),
            seconds=self.seconds,
            not_private=self.simulated or noiseless or summed.not_private,
            decoder=self.decoder,
            prior=self.prior,
            clip=self.clip,
            feedback=self.feedback,
            witness=self.witness,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


class Account:
    """What a round costs: charged before a message is made, corrected when survivors are known.

    Attributes
    ----------
    privacy : RoundPrivacy
        Of the round, adaptive clipping included.
    """

    privacy: RoundPrivacy

    def __init__(
        self,
        ledger: Any,
        parts: Round,
        clip: AdaptiveClip | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._ledger, self._parts, self._clip, self._sampling = ledger, parts, clip, sampling
        self._number: int | None = None

    def open(self, adding: Aggregation) -> None:
        """Charge the round for the survivors that are certain, or that it insists on.

        A sum that cannot come to be is refused, and costs nothing.
        """
        certain, least = adding.n_certain, self._parts.config.min_survivors
        if least is not None and (adding.n_possible is None or adding.n_possible >= least):
            certain = max(certain, least)
        self.privacy = self._cost(certain)
        if self._ledger is not None:
            self._number = self._ledger.charge(self.privacy)

    def close(self, n_survivors: int) -> None:
        """Correct the charge to the survivors there were."""
        if n_survivors == self.privacy.n_survivors:
            return
        self.privacy = self._cost(n_survivors)
        if self._ledger is not None:
            self._ledger.settle(self._number, self.privacy)

    def _cost(self, n_survivors: int) -> RoundPrivacy:
        cost = privacy_of_round(self._parts.privacy(n_survivors), self._clip)
        return cost if self._sampling is None else cost.sampled(self._sampling)


def open_ledger(ledger: Any, delta: float) -> Any:
    """Return the ledger of a path, or the one given; raise unless it accounts at this δ."""
    if isinstance(ledger, str | os.PathLike):
        ledger = Ledger(delta, path=ledger)
    if ledger is not None and getattr(ledger, "delta", delta) != delta:
        raise ValueError(
            f"delta={delta} of the round differs from delta={ledger.delta} of the ledger; use "
            "one delta for both."
        )
    return ledger


def continued(given: Any, last: Any) -> Any:
    """Return a copy of a part with state: as the last round left it, or as it is given."""
    if given is None:
        return None
    same = last is not None and last.get_params() == given.get_params()
    return copy.deepcopy(last if same else given)
