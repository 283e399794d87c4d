"""What a training run is: every option that the weights at the end depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.holding import HoldsSpec, spec_values
from experiments.training import tasks
from experiments.training.layers import check_groups
from sparse_secagg import mechanisms
from sparse_secagg.decoder_texts import check_decoder
from sparse_secagg.encoders import registry
from sparse_secagg.validation import check_integer, check_positive


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class TrainingConfig(HoldsSpec):
    """Everything that the weights at the end depend on; what is not given is the task's choice.

    Parameters
    ----------
    task : str
        Which task, such as "digits".
    **values
        The attributes below, and parameters of the round.

    Attributes
    ----------
    spec : RoundSpec
        The private rounds. Its parameters can be given by themselves, and those that are None are
        the task's. ``epsilon`` is of **all rounds together**; without it and without
        ``noise_multiplier`` the noise is what the task says, which for training is none at all.
        ``decoder`` is a text as :mod:`sparse_secagg.decoder_texts` has them; ``clip_norm`` may be
        "adaptive", which follows the median of the norms, from 0.1.
    task : str
        One of ``tasks.names()``.
    clients : int
        Clients in each round, drawn without replacement.
    debias : bool
        Ask decoders that can for their unbiased estimate, unless the decoder's text says which.
        The default in training, where what a biased decoder loses is lost again in every round.
    client_rate, batch_size, server_rate, momentum : float, int
        Of the two optimisers.
    per_layer : bool
        Sketch each layer by itself with its share of the clip.
    layer_compression : str
        Groups of layers with a rate each, ``"embedding=10,rest=50"``; see
        :mod:`experiments.training.layers`. Layers that no group names have the
        rate of "rest" or else ``compression``.
    clip_shares : str
        How layers that are sketched by themselves share the clip: "size", "equal" or the share of
        each group, ``"embedding=0.3,rest=0.9"``, whose squares sum to at most 1.
    threshold : float
        Share of the entries, the smallest, that is set to zero and added back in the next round.
        An experiment: it is biased.
    fixed_sketch : bool or None
        Whether all rounds have the same S. Thresholding then zeroes entries of the sketch, and
        what it carries over is a sketch; with a fresh S in every round it zeroes entries of the
        decoded update, and carries over parameters. None is True where there is a threshold.
    seed : int
        Initial weights, batches, sketches and, unless ``private_noise``, cohorts and noise.
    private_noise : bool
        Draw noise and cohorts from the operating system. Then the released model is as private as
        the ledger says, and a run cannot be repeated.
    data : str
        Folder or file of the task's data; default: SPARSE_SECAGG_DATA.

    See Also
    --------
    run_training : Trains.

    Examples
    --------
    >>> from experiments import TrainingConfig
    >>> TrainingConfig(task="digits", rounds=3).spec.rounds
    3
    """

    called: ClassVar[str] = "training runs"
    defaults: ClassVar[dict[str, Any]] = {
        "encoder": "count_sketch",
        "decoder": "linear",
        "compression": 1.0,
        "epsilon": None,
        "noise_multiplier": 0.0,
        "clip_norm": 0.5,
        "n_bits": 16,
        "n_rows": 15,
    }

    task: str
    clients: int = 0
    debias: bool = True
    client_rate: float = 0.1
    batch_size: int = 32
    server_rate: float = 0.3
    momentum: float = 0.9
    per_layer: bool = False
    layer_compression: str = ""
    clip_shares: str = "size"
    threshold: float = 0.0
    fixed_sketch: bool | None = None
    seed: int = 0
    private_noise: bool = False
    data: str | None = None

    def __init__(self, task: str, **values: Any) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        if isinstance(given.get("data"), os.PathLike):
            given["data"] = str(given["data"])
        if given.get("spec") is None:
            given = {**tasks.get(task).settings, **given}
        super().__init__(task=task, **given)
        _check(self)

    @property
    def sketches(self) -> bool:
        """Whether anything is compressed."""
        by_rate = self.spec.compression != 1 and self.spec.encoder != "identity"
        return by_rate or bool(self.layer_compression)

    @property
    def keeps_sketch(self) -> bool:
        """Whether all rounds have the same S."""
        return self.threshold > 0 if self.fixed_sketch is None else self.fixed_sketch

    def parameters(self) -> dict[str, Any]:
        """Return every value, but for where the data lies, as JSON values.

        Later parameters are left out where they change nothing, so that old results stay valid.
        """
        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("spec", "data")
            and not (field.name in _LATER and getattr(self, field.name) == field.default)
        }
        for name in ("client_rate", "server_rate", "momentum", "threshold"):
            own[name] = float(own[name])
        own["domain"] = None  # a former field, which the names of results still have
        return {**own, "rounds": self.spec.rounds, **spec_values(self.spec)}

    @property
    def digest(self) -> str:
        """Name of the configuration: its values, but for where the data lies."""
        text = json.dumps(self.parameters(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


#: Parameters that came after results had been kept.
_LATER = ("layer_compression", "clip_shares", "fixed_sketch")


def _check(config: TrainingConfig) -> None:
    """Raise ValueError for what no run could use, before any work."""
    registry.get(config.spec.encoder)
    mechanisms.get(config.spec.mechanism)
    # unsketched there is nothing to decode, whatever the decoder
    encoder = "count_sketch" if config.spec.compression == 1 else config.spec.encoder
    check_decoder(config.spec.decoder, encoder)
    if config.layer_compression and config.per_layer:
        raise ValueError(
            f"layer_compression={config.layer_compression!r} and per_layer=True both say how "
            "layers are sketched; give one of them."
        )
    check_groups(config.layer_compression, config.clip_shares)
    for name, least in (("clients", 1), ("batch_size", 1), ("seed", 0)):
        check_integer(name, getattr(config, name), least)
    for name in ("client_rate", "server_rate"):
        check_positive(name, getattr(config, name))
    for name in ("threshold", "momentum"):
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must lie in [0, 1).")
