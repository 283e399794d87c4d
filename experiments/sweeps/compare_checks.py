"""What is wrong with a comparison, said before any work is done; and the bits it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from experiments.recordings.recording import Recording
from experiments.results.comparison import CompareConfig, Setting
from sparse_secagg import plan
from sparse_secagg.planner import Plan

__all__ = ["choose_bits", "positions", "settings"]

#: Noise that rounding may add when the bits are chosen, and bits at which it adds none.
_BITS_SLACK = 0.02
_MORE_BITS = 12
#: Bits of a round without noise, where the planner has no noise to hide the rounding in.
_BITS_WITHOUT_NOISE = 24


def positions(recording: Recording, config: CompareConfig) -> list[int]:
    """Return where the rounds to compare lie in the recording."""
    if len(recording) == 0:
        raise ValueError(f"{recording.path} holds no rounds; there is nothing to compare.")
    if config.rounds is None:
        return list(range(len(recording)))
    missing = sorted(set(config.rounds) - set(recording.rounds))
    if missing:
        raise ValueError(
            f"round {missing[0]} is not in {recording.path}, which holds "
            f"{len(recording)} rounds from {recording.rounds[0]} to {recording.rounds[-1]}."
        )
    return [recording.rounds.index(number) for number in config.rounds]


def settings(config: CompareConfig) -> list[Setting]:
    """Return all pairs of a compression and a level of privacy."""
    for name, values, least in [
        ("compression", config.compressions, 1.0),
        ("epsilon", config.epsilons, 0.0),
        ("noise_multiplier", config.noise_multipliers, 0.0),
    ]:
        for value in values:
            if not (math.isfinite(value) and value >= least) or (name == "epsilon" and value == 0):
                raise ValueError(f"{name}={value} must be a finite number of at least {least:g}.")
    for name, value in [("draws", config.draws), ("top", config.top)]:
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    noises: list[tuple[float | None, float | None]] = [(e, None) for e in config.epsilons]
    if config.noise_multipliers:
        noises = [(None, z) for z in config.noise_multipliers]
    return [Setting(r, e, z) for r in dict.fromkeys(config.compressions) for e, z in noises]


def choose_bits(
    recording: Recording, where: list[int], chosen_settings: list[Setting], config: CompareConfig
) -> dict[Setting, int]:
    """Return the bits of each setting; raise if given ones cannot hold the largest round."""
    n = max(recording.entries[k].n for k in where)
    d = recording.entries[0].d
    chosen = {}
    for setting in chosen_settings:
        if setting.noise_multiplier == 0:
            chosen[setting] = config.n_bits or _BITS_WITHOUT_NOISE
            continue
        settled = partial(
            plan,
            d,
            n,
            epsilon=setting.epsilon or 1.0,
            delta=config.delta,
            noise_multiplier=setting.noise_multiplier,
            compression=1.0 if config.encoder == "identity" else setting.compression,
            encoder=config.encoder,
            mechanism="ddg" if config.mechanism == "central" else config.mechanism,
        )
        least = settled(n_bits=config.n_bits).n_bits  # raises where that is too few
        chosen[setting] = config.n_bits or _enough_bits(settled, least)
    return chosen


def _enough_bits(settled: Callable[..., Plan], least: int) -> int:
    """Return the fewest bits at which rounding adds at most 2 % to the noise of the sketch.

    The planner looks at the error of a mean as long as the clip, where much noise hides behind the
    compression; recorded means are far shorter.
    """

    def noise(n_bits: int) -> float:
        made = settled(n_bits=n_bits)
        return made.sigma**2 + made.gamma**2 / 4

    most = least + _MORE_BITS
    floor = noise(most)
    return next(b for b in range(least, most + 1) if noise(b) <= (1 + _BITS_SLACK) * floor)
