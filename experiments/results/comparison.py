"""What is compared and what was found: plain records that print, draw and become JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.results.comparison_statistics import Interval, Verdict, interval, judge
from experiments.results.compressibility import Compressibility

__all__ = ["CompareConfig", "CompareResult", "Outcome", "RoundSummary", "Setting"]


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What to compare.

    Attributes
    ----------
    compressions : tuple of float
        Ratios d/m.
    epsilons : tuple of float
        ε of one round, with ``delta``.
    noise_multipliers : tuple of float
        Noise multipliers z; in place of ``epsilons`` where given.
    delta : float
        δ of one round.
    decoders : tuple of str
        Decoders as :func:`~experiments.decoders.parse_decoder` reads them; by default those of
        :func:`default_decoders`.
    encoder : str
        Encoder of the sketches.
    n_rows : int, optional
        Rows of a count sketch, by default the encoder's own choice.
    mechanism : str
        Noise.
    n_bits : int, optional
        Bits of a coordinate; by default as many as it takes for rounding to add 2 % of noise
        at most.
    clip_norm : float, optional
        Clip of the updates, in place of the recording's.
    draws : int
        Draws of sketch and noise for each round.
    top : int
        K of the largest coordinates, for precision and recall.
    rounds : tuple of int, optional
        Numbers of the rounds to compare; all by default.
    seed : int
        Of sketches and noise.
    """

    compressions: tuple[float, ...] = (10.0,)
    epsilons: tuple[float, ...] = (1.0,)
    noise_multipliers: tuple[float, ...] = ()
    delta: float = 1e-5
    decoders: tuple[str, ...] = ()
    encoder: str = "count_sketch"
    n_rows: int | None = None
    mechanism: str = "ddg"
    n_bits: int | None = None
    clip_norm: float | None = None
    draws: int = 3
    top: int = 100
    rounds: tuple[int, ...] | None = None
    seed: int = 0


@dataclass(frozen=True, order=True)
class Setting:
    """One compression and one level of privacy."""

    compression: float
    epsilon: float | None
    noise_multiplier: float | None

    def __str__(self) -> str:
        noise = f"ε = {self.epsilon:g}" if self.epsilon else f"z = {self.noise_multiplier:g}"
        return f"r = {self.compression:g}, {noise}"


@dataclass(frozen=True)
class Outcome:
    """One decoder on one draw.

    Attributes
    ----------
    round, draw : int
        Number of the round, and of the draw.
    setting : Setting
        Compression and privacy.
    decoder : str
        As it was named.
    relative_error, cosine : float
        Against the mean of the clipped updates.
    precision, recall : float
        Of the top coordinates.
    seconds : float
        To decode.
    layer_errors : dict of str to float
        Relative error of each layer; NaN for a layer that is zero.
    """

    round: int
    draw: int
    setting: Setting
    decoder: str
    relative_error: float
    cosine: float
    precision: float
    recall: float
    seconds: float
    layer_errors: dict[str, float]


@dataclass(frozen=True)
class RoundSummary:
    """What one recorded round is like."""

    number: int
    n: int
    d: int
    clip_norm: float
    clip_source: str
    n_clipped: int
    n_nonfinite: int
    mean_norm: float
    compressibility: Compressibility


@dataclass(frozen=True)
class CompareResult:
    """Everything a comparison found.

    Attributes
    ----------
    recording, task : str
        What was compared.
    config : CompareConfig
        How.
    settings : list of Setting
        Compressions and levels of privacy.
    decoders : dict of str to bool
        Decoders by name, and whether each is unbiased.
    n_bits : dict of Setting to int
        Bits of a coordinate of a message.
    rounds : list of RoundSummary
        The recorded rounds.
    outcomes : list of Outcome
        One a round, setting, draw and decoder, in this order.
    """

    recording: str
    task: str | None
    config: CompareConfig
    settings: list[Setting]
    decoders: dict[str, bool]
    n_bits: dict[Setting, int]
    rounds: list[RoundSummary]
    outcomes: list[Outcome]

    def values(self, setting: Setting | None, decoder: str, measure: str) -> NDArray[np.float64]:
        """Return a measure of a decoder at one setting or at all: (rounds and settings, draws)."""
        found = [
            getattr(outcome, measure)
            for outcome in self.outcomes
            if outcome.decoder == decoder and setting in (None, outcome.setting)
        ]
        return np.array(found).reshape(-1, self.config.draws)

    def mean(self, setting: Setting, decoder: str, measure: str) -> Interval:
        """Return the mean of a measure over rounds and draws, with its interval."""
        return interval(self.values(setting, decoder, measure))

    def seconds(self, setting: Setting, decoder: str) -> float:
        """Return the median time to decode: other work on the machine does not move it."""
        return float(np.median(self.values(setting, decoder, "seconds")))

    def layer_error(self, setting: Setting, decoder: str, layer: str) -> float:
        """Return the mean relative error of one layer, over rounds where it is not zero."""
        errors = [
            outcome.layer_errors[layer]
            for outcome in self.outcomes
            if outcome.decoder == decoder and outcome.setting == setting
        ]
        found = [error for error in errors if math.isfinite(error)]
        return sum(found) / len(found) if found else math.nan

    def verdicts(self, setting: Setting | None = None) -> list[Verdict]:
        """Return the decoders to use: for one estimate, and for training (unbiased ones)."""
        errors = {name: self.values(setting, name, "relative_error") for name in self.decoders}
        unbiased = {name: errors[name] for name, fair in self.decoders.items() if fair}
        verdicts = [judge("one estimate", errors)]
        if unbiased:
            verdicts.append(judge("training (unbiased)", unbiased, shrinks=False))
        return verdicts

    @property
    def sentences(self) -> list[str]:
        """The recommendation in words, over all settings."""
        return [verdict.sentence for verdict in self.verdicts()]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        return {
            "recording": self.recording,
            "task": self.task,
            "config": asdict(self.config),
            "recommendation": self.sentences,
            "rounds": [_plain(asdict(each)) for each in self.rounds],
            "settings": [
                {
                    **asdict(setting),
                    "n_bits": self.n_bits[setting],
                    "recommendation": [v.sentence for v in self.verdicts(setting)],
                    "decoders": [self._summary(setting, name) for name in self.decoders],
                }
                for setting in self.settings
            ],
            "outcomes": [_plain(asdict(each)) for each in self.outcomes],
        }

    def _summary(self, setting: Setting, decoder: str) -> dict[str, Any]:
        measures = ("relative_error", "cosine", "precision", "recall")
        means = {name: asdict(self.mean(setting, decoder, name)) for name in measures}
        layers = [layer.name for layer in self.rounds[0].compressibility.layers]
        return _plain(
            {
                "decoder": decoder,
                "unbiased": self.decoders[decoder],
                **means,
                "seconds": self.seconds(setting, decoder),
                "layers": {name: self.layer_error(setting, decoder, name) for name in layers},
            }
        )


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: keys as text, NaN as null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
