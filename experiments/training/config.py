"""What a training run is: every option that the weights at the end depend on."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, replace

from experiments.datasets.domains import check_domain
from experiments.training import tasks
from sparse_secagg import mechanisms

__all__ = ["ENCODERS", "TrainingConfig"]

ENCODERS = ("count_sketch", "gaussian", "hadamard", "identity")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that the weights at the end depend on; what is None is left to the task.

    Attributes
    ----------
    task : str
        One of ``tasks.names()``.
    rounds, clients : int
        Rounds, and clients in each, drawn without replacement.
    noise_multiplier, epsilon : float
        Noise of each round as z, or the ε of **all rounds together** against the server; at most
        one of them. Neither: what the task says, which for training is no noise at all.
    delta : float
        δ of every ε.
    compression : float
        r = d/m; 1 sends the update itself, unsketched, and leaves the decoder nothing to do.
    n_bits : int
        Bits of a coordinate of a message.
    encoder, mechanism, decoder : str
        Parts of the pipeline; the decoder as in :func:`experiments.decoders.parse_decoder`.
    n_rows : int
        Rows of a count sketch.
    debias : bool
        Ask decoders that can for their unbiased estimate, unless the decoder's text says which.
        The default in training, where what a biased decoder loses is lost again in every round.
    clip_norm : float or "adaptive"
        ℓ₂ clip of an update; "adaptive" follows the median of the norms, from 0.1.
    client_rate, batch_size, server_rate, momentum : float, int
        Of the two optimisers.
    layers : {"whole", "separate"}
        Sketch the update as one vector, or each layer by itself with its share of the clip.
    threshold : float
        Share of the sketch's entries, the smallest, that is set to zero and added back in the next
        round; the sketch then stays the same in all rounds. An experiment: it is biased.
    colluders : int
        Clients of a cohort that may tell the server their noise, which is sized without theirs.
    seed : int
        Initial weights, batches, sketches and, unless ``private_noise``, cohorts and noise.
    private_noise : bool
        Draw noise and cohorts from the operating system. Then the released model is as private as
        the ledger says, and a run cannot be repeated.
    data : str
        Folder or file of the task's data; default: SPARSE_SECAGG_DATA.
    domain : str or int
        Of heavy hitters, as in :func:`experiments.datasets.choose_domain`: a file of items, a
        number of hash cells, or "observed", which is not private.
    """

    task: str
    rounds: int | None = None
    clients: int | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    compression: float | None = None
    n_bits: int | None = None
    encoder: str = "count_sketch"
    n_rows: int | None = None
    mechanism: str = "ddg"
    decoder: str | None = None
    debias: bool | None = None
    clip_norm: float | str | None = None
    client_rate: float | None = None
    batch_size: int | None = None
    server_rate: float | None = None
    momentum: float | None = None
    layers: str = "whole"
    threshold: float = 0.0
    colluders: int = 0
    seed: int = 0
    private_noise: bool = False
    data: str | None = None
    domain: str | int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.data, os.PathLike):
            object.__setattr__(self, "data", str(self.data))
        _check(self)

    @property
    def digest(self) -> str:
        """Name of the configuration: its values, but for where the data lies."""
        values = {name: value for name, value in asdict(self.resolved()).items() if name != "data"}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def resolved(self) -> TrainingConfig:
        """Return the configuration with the task's own values where they were left open."""
        settings = vars(tasks.get(self.task).settings)
        left = {name: value for name, value in settings.items() if getattr(self, name) is None}
        if self.noise_multiplier is not None:
            left.pop("epsilon", None)
        elif self.epsilon is None and left["epsilon"] is None:
            left["noise_multiplier"] = 0.0
        return replace(self, **left)


def _check(config: TrainingConfig) -> None:
    """Raise ValueError for what no run could use, before any work."""
    if not tasks.get(config.task).trains and config.rounds not in (None, 1):
        raise ValueError(
            f"rounds={config.rounds}: task={config.task!r} trains nothing and takes one round."
        )
    if config.domain is not None:
        if tasks.get(config.task).trains:
            raise ValueError(
                f"domain={config.domain!r}: task={config.task!r} counts no items; leave it out."
            )
        check_domain(config.domain)
    if not 0 <= config.threshold < 1:
        raise ValueError(f"threshold={config.threshold} must lie in [0, 1).")
    for name, choices in (
        ("encoder", ENCODERS),
        ("mechanism", mechanisms.names()),
        ("layers", ("whole", "separate")),
    ):
        if getattr(config, name) not in choices:
            raise ValueError(
                f"{name}={getattr(config, name)!r} is not known; choose one of "
                f"{', '.join(choices)}."
            )
    if config.epsilon is not None and config.noise_multiplier is not None:
        raise ValueError(
            f"epsilon={config.epsilon} and noise_multiplier={config.noise_multiplier} both set the "
            "noise; give one of them."
        )
    for name in ("rounds", "clients", "n_bits", "n_rows", "batch_size"):
        value = getattr(config, name)
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name}={value!r} must be an integer, at least 1.")
    for name in ("seed", "colluders"):
        value = getattr(config, name)
        if not (isinstance(value, int) and value >= 0):
            raise ValueError(f"{name}={value!r} must be an integer, at least 0.")
    for name, least, inclusive in (
        ("noise_multiplier", 0.0, True),
        ("epsilon", 0.0, False),
        ("compression", 1.0, True),
        ("client_rate", 0.0, False),
        ("server_rate", 0.0, False),
        ("momentum", 0.0, True),
    ):
        value = getattr(config, name)
        if value is None:
            continue
        if not (math.isfinite(value) and (value > least or (inclusive and value == least))):
            sign = "at least" if inclusive else "above"
            raise ValueError(f"{name}={value!r} must be a finite number, {sign} {least:g}.")
    if config.momentum is not None and config.momentum >= 1:
        raise ValueError(f"momentum={config.momentum} must be below 1; the usual choice is 0.9.")
    clip = config.clip_norm
    if isinstance(clip, str):
        if clip != "adaptive":
            raise ValueError(f"clip_norm={clip!r} must be a positive number or 'adaptive'.")
    elif clip is not None and not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"clip_norm={clip!r} must be a positive number or 'adaptive'.")
    if not 0 < config.delta < 1:
        raise ValueError(f"delta={config.delta} must lie strictly between 0 and 1.")
