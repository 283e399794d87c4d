"""A stand-in for ``sparse_secagg.RoundSpec`` until it is there: the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sparse_secagg import SparseSecAgg
from sparse_secagg.parameters import RoundParameters, check_parameters, round_parameters

__all__ = ["Aggregate", "RoundSpec"]

_NOT_TAKEN = {"n_rows", "beta", "rounds", "prior", "population", "observer"}


@dataclass(frozen=True)
class Aggregate:
    """A round that was run, to be decoded as often as wanted."""

    fitted: SparseSecAgg

    def decode(self, decoder: Any) -> NDArray[Any]:
        """Return the mean as a solver sees it."""
        return self.fitted.decode(decoder)

    def diagnose(self, mean: Any) -> Any:
        """Compare with the data."""
        return self.fitted.diagnostics_

    @property
    def config(self) -> Any:
        """The round as a server would broadcast it."""
        return self.fitted.config_

    @property
    def operator(self) -> Any:
        """The map S."""
        return self.fitted.operator_

    @property
    def noise_std(self) -> float:
        """Noise in each coordinate of the sketch."""
        return float(self.fitted.noise_std_)

    @property
    def epsilon(self) -> float:
        """ε of the round."""
        return float(self.fitted.epsilon_)

    @property
    def bits_per_client(self) -> int:
        """Payload."""
        return int(self.fitted.bits_per_client_)

    @property
    def bits_per_parameter(self) -> float:
        """Payload over d."""
        return float(self.fitted.bits_per_parameter_)


@dataclass(kw_only=True, eq=False, repr=False)
class RoundSpec(RoundParameters):
    """What a private round is."""

    def __post_init__(self) -> None:
        check_parameters(self)

    def replace(self, **changes: Any) -> RoundSpec:
        """Return the spec with some parameters changed."""
        return type(self)(**{**{n: getattr(self, n) for n in round_parameters()}, **changes})

    def run(
        self,
        X: Any,
        *,
        random_state: Any,
        simulation_seed: int | None,
        diagnostics: bool = False,
    ) -> Aggregate:
        """Run one round."""
        values = {n: getattr(self, n) for n in round_parameters() if n not in _NOT_TAKEN}
        if values["epsilon"] is None:
            values["epsilon"] = 1.0
        if values["encoder"] == "count_sketch":
            from sparse_secagg.encoders import registry

            values["encoder"] = registry.get(
                "count_sketch", compression=self.compression, n_rows=self.n_rows
            )
        fitted = SparseSecAgg(
            **values,
            random_state=random_state,
            simulation_seed=simulation_seed,
            diagnostics=diagnostics,
        ).fit(X)
        return Aggregate(fitted)
