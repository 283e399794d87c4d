"""RoundSpec: what a private round is, in one frozen record; everything that runs a round holds one.

spec.plan(d, n)      what it will cost and achieve
spec.config(d, n)    the public configuration that parties exchange
spec.run(X)          all parties in one process: an Aggregate
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from sparse_secagg import mechanisms
from sparse_secagg.encoders import BlockEncoder, LinearEncoder, registry
from sparse_secagg.exceptions import PrivacyWarning
from sparse_secagg.mechanisms import IntegerMechanism
from sparse_secagg.mechanisms.randomness import (
    PrivateRandomness,
    Randomness,
    SimulationRandomness,
)
from sparse_secagg.parameters import (
    NoiseParameters,
    RoundParameters,
    check_parameters,
    default,
    documented,
    round_parameters,
)
from sparse_secagg.parts import import_part, path_of
from sparse_secagg.planner import Plan, describe_round, plan
from sparse_secagg.planning.predictions import PREDICTIONS
from sparse_secagg.privacy.sampling import Sampling
from sparse_secagg.round.aggregate import Aggregate
from sparse_secagg.round.clipping import AdaptiveClip
from sparse_secagg.round.cohort import LocalRows
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.round.dask_rows import DaskRows, is_dask_array
from sparse_secagg.round.decoders import make_decoder
from sparse_secagg.round.diagnostics import Witness
from sparse_secagg.round.parts import Round
from sparse_secagg.round.run import PrivateRound, continued, open_ledger
from sparse_secagg.secagg.registry import make_secagg
from sparse_secagg.secagg.weights import unit_weights

__all__ = ["RoundSpec"]

#: What may be left to the planner.
_PLANNED = ("encoder", "n_bits", "decoder")


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class RoundSpec(RoundParameters):
    """What a private round is: a frozen, validated record.

    Parameters
    ----------
    {parameters}

    See Also
    --------
    SparseSecAgg : The same parameters as an estimator.
    announce_round : The same round between parties.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import RoundSpec
    >>> spec = RoundSpec(epsilon=2.0, compression=5)
    >>> spec.config(d=1000, n=300).mechanism.dim
    200
    >>> spec.run(np.full((300, 1000), 0.01)).n_survivors
    300
    >>> spec.replace(epsilon=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: epsilon=-1.0 must be a finite positive number.
    """

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.observer == "release" and self.population is None:
            raise ValueError("observer='release' needs population, from which cohorts are sampled.")
        object.__setattr__(self, "_frozen", True)

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"a RoundSpec does not change; use spec.replace({name}=...).")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a RoundSpec does not change.")

    @classmethod
    def of(cls, holder: NoiseParameters) -> RoundSpec:
        """Return the spec with the parameters that ``holder``, such as an estimator, has."""
        return cls(**{n: getattr(holder, n) for n in round_parameters() if hasattr(holder, n)})

    def replace(self, **changes: Any) -> RoundSpec:
        """Return the spec with some parameters changed."""
        return type(self)(**{**self._values(), **changes})

    # -- what it means for d and n -------------------------------------------------------------

    def resolved(self, d: int, n: int, *, sparse: bool = False) -> RoundSpec:
        """Return the spec with nothing left open for n vectors of length d.

        Parameters
        ----------
        d, n : int
            Length of the vectors and size of the cohort.
        sparse : bool
            Whether rows come in a sparse container, for ``encoder="auto"``.
        """
        spec = self
        if spec.encoder == "auto":
            spec = spec.replace(encoder="count_sketch" if sparse else "hadamard")
        if any(getattr(spec, name) is None for name in _PLANNED):
            p = spec.plan(d, n)
            return spec.replace(
                encoder=p.make_encoder(),
                compression=p.compression,
                n_bits=p.n_bits,
                decoder=p.decoder,
                sketch_clip=p.sketch_clip,
            )
        if spec.compression is None and isinstance(spec.encoder, str):
            sketches = spec.encoder != "identity"
            spec = spec.replace(compression=spec._planned_compression(d, n) if sketches else 1)
        return spec

    def plan(
        self,
        d: int,
        n: int,
        *,
        error_slack: float = 1.0,
        target_error: float | None = None,
    ) -> Plan:
        """Return what the round will cost and achieve.

        What is None is chosen, as :func:`~sparse_secagg.plan` does; a spec that leaves nothing
        open is described.

        Parameters
        ----------
        d, n : int
            Length of the vectors and size of the cohort.
        error_slack, target_error : float
            As in :func:`~sparse_secagg.plan`, for what is chosen.
        """
        if any(getattr(self, name) is None for name in (*_PLANNED, "compression")):
            values = self._values()
            if self.encoder == "auto":
                values["encoder"] = "hadamard"
            if isinstance(self.clip_norm, AdaptiveClip):
                values["clip_norm"] = self.clip_norm.current
            return plan(d, n, error_slack=error_slack, target_error=target_error, **values)
        parts = self.resolved(d, n)._calibrated(d, n, None)
        return describe_round(
            self,
            encoder=parts.encoder,
            encoder_name=parts.config.encoder["name"],
            decoder=decoder_name(self.decoder),
            calibrated=parts.config.mechanism,
            clip_norm=parts.config.clip_norm,
            privacy=parts.mechanism.privacy().sampled(self.sampling(n)),
            noise_std=parts.mechanism.noise_std(),
            mechanism=clone(parts.mechanism),
        )

    def config(
        self,
        d: int,
        n: int,
        *,
        sparse: bool = False,
        random_state: Any = None,
        round_id: str | None = None,
    ) -> RoundConfig:
        """Return the public configuration of a round of n vectors of length d."""
        return self.resolved(d, n, sparse=sparse)._calibrated(d, n, random_state, round_id).config

    def run(
        self,
        X: Any,
        *,
        sample_weight: ArrayLike | None = None,
        dropouts: Any = None,
        ledger: Any = None,
        random_state: Any = None,
        simulation_seed: int | None = None,
        diagnostics: bool = False,
        previous: Aggregate | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Aggregate:
        """Run one round over the rows of X, all parties in this process and its workers.

        Parameters
        ----------
        X : array, sparse matrix, memmap, recording or Dask array of shape (n, d)
            One client a row. A row with NaN or Inf counts as zero. Rows are read in blocks; those
            of a Dask array are encoded where they are.
        sample_weight : array-like of shape (n,), optional
            Public weights, scaled to at most 1 and applied before clipping.
        dropouts : optional
            Clients that leave: a list, a rate, or a mapping from stages to lists.
        ledger : Ledger or path, optional
            Charged before any message is made.
        random_state : int, RandomState, Generator or None
            Public randomness: sketch and rotation. None draws it anew.
        simulation_seed : int, optional
            Seeds the private noise too: reproducible, and **not private**. For experiments.
        diagnostics : bool, default=False
            Keep what is needed to compare the result with the data, for ``diagnose``.
        previous : Aggregate, optional
            The round before, whose adaptive clip and error feedback this one carries on.
        n_jobs : int, optional
            Blocks of rows that are encoded at a time, each on one thread: of this process, or what
            ``joblib.parallel_config`` says. None: one, which all threads work on. The result does
            not depend on it. A Dask array brings its own workers.
        progress : callable, optional
            Called with the numbers of clients encoded and of all clients.
        """
        rows = DaskRows(X) if is_dask_array(X) else LocalRows(X, n_jobs)
        n, d = rows.shape
        weights = None if sample_weight is None else _check_weights(sample_weight, n)
        spec = self.resolved(d, n, sparse=rows.sparse)
        make_decoder(spec.decoder, spec.prior)  # a bad name must not cost a round
        if self.feedback is not None and not isinstance(random_state, int | np.integer):
            raise ValueError(
                f"random_state={random_state!r} draws a new sketch every round, which error "
                "feedback cannot carry over; pass an integer."
            )
        adaptive = isinstance(self.clip_norm, AdaptiveClip)
        clip = continued(self.clip_norm, previous and previous.clip) if adaptive else None
        rng = _randomness(simulation_seed)
        current = spec if clip is None else spec.replace(clip_norm=clip.current)
        parts = current._calibrated(d, n, random_state)
        return PrivateRound(
            parts=parts,
            secagg=make_secagg(self.secagg),
            rng=rng,
            ledger=open_ledger(ledger, parts.config.delta),
            sampling=self.sampling(n),
            clip=clip,
            feedback=continued(self.feedback, previous and previous.feedback),
            decoder=spec.decoder,
            prior=spec.prior,
            simulated=simulation_seed is not None,
            witness=Witness(parts) if diagnostics else None,
            progress=progress,
        ).run(rows, weights, dropouts)

    # -- parts --------------------------------------------------------------------------------

    def sampling(self, n: int) -> Sampling | None:
        """Return how a cohort of n clients is drawn from the population."""
        return None if self.population is None else Sampling(n, int(self.population))

    def make_encoder(self) -> LinearEncoder:
        """Return the encoder of a resolved spec, not yet fitted."""
        encoder = self.encoder
        if isinstance(encoder, str):
            if encoder == "blocks":
                raise ValueError("encoder='blocks': give layers= and the encoder of each layer.")
            sizes = {} if encoder == "identity" else {"compression": self.compression}
            if encoder == "count_sketch":
                sizes["n_rows"] = self.n_rows
            encoder = registry.get(encoder, **sizes)
        return encoder if self.layers is None else BlockEncoder(self.layers, encoder=encoder)

    def make_mechanism(self, n: int) -> IntegerMechanism:
        """Return the mechanism, its noise sized for n clients' guaranteed survivors."""
        certain = make_secagg(self.secagg).guaranteed_survivors(n)
        guaranteed = self.min_survivors
        if certain is not None:
            guaranteed = max(guaranteed or 0, certain)
        if not isinstance(self.mechanism, str):
            # an instance brings its own promises, which may be stronger
            own = self.mechanism
            self._check_instance(own)
            least = max(guaranteed or 0, own.min_survivors or 0) or None
            made: IntegerMechanism = clone(own)
            made.set_params(min_survivors=least, colluders=max(self.colluders, own.colluders))
            return made
        shared = {item.name: getattr(self, item.name) for item in fields(NoiseParameters)}
        shared["min_survivors"] = guaranteed
        if isinstance(self.clip_norm, AdaptiveClip):
            shared["clip_norm"] = self.clip_norm.current
        released = self.observer == "release"
        return mechanisms.get(
            self.mechanism, **shared, sampling=self.sampling(n) if released else None
        )

    def _check_instance(self, own: IntegerMechanism) -> None:
        """Raise if a promise of privacy is given here and differs in the mechanism given."""
        for name in ("epsilon", "delta", "noise_multiplier", "adjacency"):
            mine, its = getattr(self, name), getattr(own, name)
            if mine not in (default(name), its):
                raise ValueError(
                    f"{name}={mine!r} is not used, since mechanism= is an instance whose {name} is "
                    f"{its!r}; give it there."
                )

    def _calibrated(self, d: int, n: int, random_state: Any, round_id: str | None = None) -> Round:
        clip = self.clip_norm
        return Round.calibrate(
            dim=d,
            n_clients=n,
            encoder=self.make_encoder(),
            mechanism=self.make_mechanism(n),
            clip_norm=clip.current if isinstance(clip, AdaptiveClip) else clip,
            sketch_clip=self.sketch_clip,
            random_state=random_state,
            round_id=round_id,
        )

    def _planned_compression(self, d: int, n: int) -> float:
        """Return the compression of the fewest bits, as the planner sees the round."""
        if not isinstance(self.mechanism, str):
            raise ValueError("compression=None needs a mechanism given by its name, to plan with.")
        decoder = decoder_name(self.decoder)
        if self.sparsity is None or decoder not in PREDICTIONS:
            decoder = "linear"
        mechanism = "ddg" if self.mechanism == "central" else self.mechanism
        # the choice does not depend on the unit of length
        planned = {**self._values(), "decoder": decoder, "mechanism": mechanism, "clip_norm": 1.0}
        return plan(d, n, **planned).compression

    # -- records ------------------------------------------------------------------------------

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in round_parameters()}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as JSON values; parts given as instances by class and parameters.

        Layers are pairs of ends. Parts whose own parameters are not JSON values, such as priors,
        cannot be written.
        """
        return {name: _to_json_value(name, value) for name, value in self._values().items()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Return the spec that :meth:`to_dict` described.

        Parts come from this package and from ``solvers`` only: a description may be somebody
        else's, and nothing of theirs is imported.
        """
        values = {name: _from_json_value(name, value) for name, value in document.items()}
        unknown = sorted(set(values) - set(round_parameters()))
        if unknown:
            raise ValueError(f"a round has no parameters {', '.join(unknown)}.")
        return cls(**values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> str:
        shown = {name: _shown(value) for name, value in self._values().items()}
        return json.dumps(shown, sort_keys=True, default=repr)

    def __repr__(self) -> str:
        values = self._values()
        changed = [
            f"{name}={value!r}"
            for name, value in values.items()
            if not (value is default(name) or _shown(value) == _shown(default(name)))
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def decoder_name(decoder: Any) -> str:
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


def _randomness(simulation_seed: int | None) -> Randomness:
    if simulation_seed is None:
        return PrivateRandomness()
    warnings.warn(
        f"simulation_seed={simulation_seed} makes the noise predictable: the result is "
        "not private. Leave it out for real data.",
        PrivacyWarning,
        stacklevel=4,
    )
    return SimulationRandomness(simulation_seed)


def _shown(value: Any) -> Any:
    """Return a value by which specs are compared: parts by class and parameters."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if hasattr(value, "get_params"):
        parameters = value.get_params(deep=False)
        return {"class": path_of(type(value)), **{k: _shown(v) for k, v in parameters.items()}}
    if hasattr(value, "items"):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, slice):
        return [value.start, value.stop]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, value.tobytes().hex()]
    return repr(value)


def _to_json_value(name: str, value: Any) -> Any:
    shown = _shown(value)
    try:
        json.dumps(shown, allow_nan=False)
    except (TypeError, ValueError):
        shown = None
    plain = value is None or isinstance(value, bool | int | float | str)
    if (shown is None and value is not None) or not (
        plain or hasattr(value, "get_params") or hasattr(value, "items")
    ):
        raise ValueError(f"{name}={value!r} cannot be written as JSON; give it by its name.")
    return shown


def _from_json_value(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "class" not in value:
        return {key: slice(*ends) for key, ends in value.items()}
    path = str(value["class"])
    if path.split(".")[0] not in ("sparse_secagg", "solvers"):
        raise ValueError(f"{name}: class {path!r} is not of this package; pass an instance.")
    parameters = {k: _from_json_value(name, v) for k, v in value.items() if k != "class"}
    return import_part(path, name, object)(**parameters)
