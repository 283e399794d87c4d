"""The private mean of one round of training, and the ledger of all of them.

Neighbouring data sets differ by one client whose updates are all zero ("zero-out"). Against the
server, which knows who takes part, every round counts in full. Against somebody who sees only the
models the rounds are amplified by sampling without replacement, provided that the cohorts are
secret: drawn from the operating system, not from the run's seed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from experiments.models.architectures import Architecture
from experiments.training.config import TrainingConfig
from experiments.training.layers import grouped_encoder
from experiments.training.records import PrivacySpent, TrainingState
from experiments.training.seeds import ClientRandomness
from solvers import Solver
from solvers.lasso import LassoSolver
from sparse_secagg import PrivacyWarning, SparseSecAgg, mechanisms
from sparse_secagg.clipping import AdaptiveClip
from sparse_secagg.decoder_texts import parse_decoder
from sparse_secagg.encoders import BlockEncoder, registry
from sparse_secagg.feedback import ThresholdFeedback
from sparse_secagg.mechanisms import IntegerMechanism
from sparse_secagg.privacy import OBSERVERS, Ledger, RoundPrivacy, Sampling
from sparse_secagg.round.dask_rows import is_dask_array

#: Relative width at which the search for the noise of a budget stops.
_NOISE_TOLERANCE = 1e-6


class Aggregator:
    """Averages the updates of one round after another, and keeps the ledger.

    Cohorts are drawn from a population of so many clients; ``state`` is where the run goes on. The
    ledger, by default one in memory, is charged by every round before its sum is opened.
    """

    last_: SparseSecAgg  # the last round

    def __init__(
        self,
        config: TrainingConfig,
        architecture: Architecture,
        population: int,
        state: TrainingState | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> None:
        spec = config.spec
        self.config, self.population = config, population
        self.n_clients = min(config.clients, population)
        self.dim = architecture.n_parameters
        self.adaptive = isinstance(spec.clip_norm, AdaptiveClip)
        self.clip_norm = spec.clip_norm.current if self.adaptive else float(spec.clip_norm)
        self.encoder = self._make_encoder(architecture)
        # unsketched there is nothing to decode: one run is the baseline of every decoder
        self.decoder = training_decoder(
            spec.decoder if config.sketches else "linear",
            debias=bool(config.debias),
            shapes=architecture.shapes,
        )
        # a cohort that follows from the seed is no secret
        self.sampling = Sampling(self.n_clients, population, secret=config.private_noise)
        self.noise_multiplier = self._noise_multiplier()
        self.ledger = Ledger(spec.delta) if ledger is None else ledger
        self.randomness = ClientRandomness(config.seed)
        self.unconverged = 0
        self._buffer: NDArray[np.float64] = np.empty((0, 0))
        self.feedback = ThresholdFeedback(config.threshold) if config.threshold else None
        parameters = self._calibrated(self.noise_multiplier).parameters_
        self.bits_per_parameter = parameters.bits_per_client / self.dim
        if state is not None and state.rounds:
            self._go_on(state)

    def _go_on(self, state: TrainingState) -> None:
        """Start where ``state`` is; its rounds must be in the ledger."""
        if self.ledger.rounds < state.rounds and not self.config.private_noise:
            # the same rounds could be simulated again, bit for bit
            for number in range(state.rounds):
                self.ledger.charge(self.round_privacy(), key=self._key(number))
        if self.ledger.rounds < state.rounds:
            raise ValueError(
                f"the run has done {state.rounds} rounds, but the ledger holds "
                f"{self.ledger.rounds}: what they spent would be forgotten. Go on with the run's "
                "own ledger (ledger.sqlite beside its checkpoint)."
            )
        self.clip_norm, self.unconverged = state.clip_norm, state.unconverged
        if self.feedback is not None and len(state.dropped):
            self.feedback.error_ = state.dropped

    @property
    def dropped(self) -> NDArray[np.float64]:
        """What thresholding carries over to the next round; empty without it."""
        return np.asarray(getattr(self.feedback, "error_", np.empty(0)))

    @property
    def spent(self) -> PrivacySpent:
        """ε of all rounds so far."""
        return PrivacySpent(*(self.ledger.epsilon(observer) for observer in OBSERVERS))

    @property
    def observer(self) -> str:
        """The observer that the run's ε is about."""
        return self._calibrated(self.noise_multiplier).privacy().observer

    def mean(self, updates: Any, number: int) -> NDArray[np.float64]:
        """Run round ``number`` over the rows of ``updates``; return the decoded mean."""
        fixed = self.config.keeps_sketch
        round_ = SparseSecAgg(
            self.encoder,
            mechanism=self._mechanism(self.noise_multiplier),
            clip_norm=AdaptiveClip(self.clip_norm) if self.adaptive else self.clip_norm,
            decoder="linear",  # costs nothing; the decoder of the run comes below
            # with what the round before dropped: a sketch, while the sketch stays the same
            feedback=self.feedback if fixed else None,
            random_state=self.randomness.sketch(0 if fixed else number),
            simulation_seed=None if self.config.private_noise else self.randomness.noise(number),
            ledger=_Charges(self.ledger, self.sampling, self._key(number)),
        )
        if not self.adaptive:
            updates = self._clipped(updates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # the result says it once
            round_.fit(updates)
        if self.adaptive:
            self.clip_norm = round_.clip_.current
        self.last_ = round_
        mean = self._decode(round_)
        if self.feedback is not None and fixed:
            self.feedback = round_.feedback_
        elif self.feedback is not None:
            mean = self.feedback.apply(mean)
        return mean

    def _clipped(self, updates: Any) -> Any:
        """Return the updates within the clip, where they are."""
        if is_dask_array(updates):
            return updates.map_blocks(_within, self.clip_norm, dtype=np.float64)
        if not isinstance(updates, np.ndarray):
            return updates
        if self._buffer.shape != updates.shape:
            self._buffer = np.empty(updates.shape)
        return _within(updates, self.clip_norm, self._buffer)

    def _decode(self, round_: SparseSecAgg) -> NDArray[np.float64]:
        # what a sparse fit leaves of a dense mean is noise to it as well: the Lasso estimates its
        # noise, since the mechanism's alone is far too small
        known = not isinstance(self.decoder, LassoSolver)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            solver = self.decoder.fit(
                round_.operator_, round_.sketch_, noise_std=round_.noise_std_ if known else None
            )
        self.unconverged += any(issubclass(w.category, ConvergenceWarning) for w in caught)
        return np.asarray(solver.coef_)

    # -- parts ----------------------------------------------------------------------------------

    def _make_encoder(self, architecture: Architecture) -> Any:
        config, encoder = self.config, self._encoder()
        if config.layer_compression:
            encoder = grouped_encoder(
                architecture, config.layer_compression, config.clip_shares, self._encoder
            )
        elif config.per_layer and config.sketches:
            encoder = BlockEncoder(architecture.slices, encoder=encoder)
        return encoder.fit_dimension(self.dim)

    def _encoder(self, rate: float | None = None) -> Any:
        spec = self.config.spec
        compression = spec.compression if rate is None else rate
        if compression == 1 or spec.encoder == "identity":
            return registry.get("identity")
        rows = {"n_rows": spec.n_rows} if spec.encoder == "count_sketch" else {}
        return registry.get(spec.encoder, compression=compression, **rows)

    def _mechanism(self, noise_multiplier: float) -> IntegerMechanism:
        return mechanisms.get(
            self.config.spec.mechanism,
            noise_multiplier=noise_multiplier,
            delta=self.config.spec.delta,
            n_bits=self.config.spec.n_bits,
            colluders=self.config.spec.colluders,
        )

    def _calibrated(self, noise_multiplier: float) -> IntegerMechanism:
        mechanism = self._mechanism(noise_multiplier)
        mechanism.calibrate(self.n_clients, self.encoder.n_components_)
        return mechanism

    def _noise_multiplier(self) -> float:
        """Return z, or the smallest z that keeps all rounds within ε (from above)."""
        spec = self.config.spec
        if spec.noise_multiplier is not None:
            return float(spec.noise_multiplier)
        budget, rounds = spec.epsilon, spec.rounds

        def spent(z: float) -> float:
            return self.round_privacy(z).epsilon(rounds=rounds)

        if self.adaptive and self._clip_privacy().epsilon(rounds=rounds) >= budget:
            raise ValueError(
                f"epsilon={budget} cannot be kept over {rounds} rounds of {self.n_clients} "
                "clients: adaptive clipping alone costs more. Raise epsilon or clients, lower "
                "rounds, or give a fixed clip_norm."
            )
        low, high = 0.0, 1.0
        while spent(high) > budget:
            low, high = high, 2 * high
        while high - low > _NOISE_TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if spent(middle) <= budget else (middle, high)
        return high

    # -- privacy --------------------------------------------------------------------------------

    def round_privacy(self, noise_multiplier: float | None = None) -> RoundPrivacy:
        """Return what one round of the run reveals, to every observer."""
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        privacy = self._calibrated(z).privacy(sampling=self.sampling)
        return privacy.plus(*self._clip_privacy().sums) if self.adaptive else privacy

    def _clip_privacy(self) -> RoundPrivacy:
        colluders = self.config.spec.colluders
        return AdaptiveClip().mechanism(self.n_clients, colluders=colluders).privacy()

    def _key(self, number: int) -> str | None:
        """Name a round that would be the same bit for bit if it were run again: a simulated one."""
        return None if self.config.private_noise else f"{self.config.digest} round {number}"


def _within(
    updates: NDArray[np.float32], clip_norm: float, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the updates within the clip, in double precision, in one pass over them.

    The round clips again, and finds nothing to do: its careful clipping of every row would take a
    third of a round's time. A row with NaN or Inf is left for the round to zero.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
        scale = np.minimum(1.0, (1 - 1e-6) * clip_norm / norms)
    scale[~np.isfinite(norms)] = 1.0
    return np.asarray(np.multiply(updates, scale[:, None], out=out))


@dataclass(frozen=True)
class _Charges:
    """The ledger as one round charges it: with the run's sampling, under the round's name."""

    ledger: Ledger
    sampling: Sampling
    key: str | None

    @property
    def delta(self) -> float:
        return self.ledger.delta

    def charge(self, privacy: RoundPrivacy) -> int:
        return self.ledger.charge(privacy.sampled(self.sampling), key=self.key)

    def settle(self, number: int, privacy: RoundPrivacy) -> None:
        self.ledger.settle(number, privacy.sampled(self.sampling))


def training_decoder(spec: str, *, debias: bool, shapes: Any) -> Solver:
    """Return the decoder of a text, unbiased where it can be and the text does not say.

    Examples
    --------
    >>> training_decoder("amp", debias=True, shapes=None)
    AMP(debias=True)
    >>> training_decoder("amp:debias=False", debias=True, shapes=None)
    AMP()
    """
    solver = parse_decoder(spec, shapes)
    if "debias" in solver.get_params(deep=False) and "debias" not in spec:
        solver.set_params(debias=debias)
    return solver
