"""Flower's privacy-accountant protocol, kept by a :class:`~sparse_secagg.accounting.Ledger`.

Flower's own mechanisms describe a release as a Gaussian one with a noise multiplier and a sampling
model; its Rényi curve is charged to the ledger, where rounds of this package may stand beside it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)
from numpy.typing import NDArray

from sparse_secagg.privacy import (
    Ledger,
    gaussian_rdp,
    poisson_subsampled_rdp,
    rdp_to_dp,
    subsampled_rdp_without_replacement,
)

__all__ = ["LedgerAccountant"]


class LedgerAccountant:
    """A ledger that Flower's differentially private strategies can charge.

    Parameters
    ----------
    config : PrivacyConfig
        Flower's: δ, population, neighbours, sampling, limit.
    ledger : Ledger, optional
        Where charges go; one in memory by default. Its δ must be the configuration's.

    Raises
    ------
    ValueError
        If the ledger's δ is not the configuration's.

    See Also
    --------
    sparse_secagg.privacy.Ledger : Keeps the charges.
    PrivateFedAvg : Charges a ledger by itself.

    Examples
    --------
    >>> from flwr.serverapp import (
    ...     GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod,
    ... )
    >>> from sparse_secagg.flower import LedgerAccountant
    >>> config = PrivacyConfig(
    ...     1e-5, 1000, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    ... )
    >>> accountant = LedgerAccountant(config)
    >>> accountant.compose(GaussianPrivacyEvent(10.0, 100, 1000), count=4)
    >>> round(accountant.get_epsilon(1e-5), 3)
    0.795
    """

    def __init__(self, config: PrivacyConfig, ledger: Ledger | None = None) -> None:
        self._config = config
        self.ledger = Ledger(config.target_delta) if ledger is None else ledger
        if self.ledger.delta != config.target_delta:
            raise ValueError(
                f"target_delta={config.target_delta} differs from the ledger's delta="
                f"{self.ledger.delta}; use one delta for both."
            )

    @property
    def config(self) -> PrivacyConfig:
        """Flower's configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Releases charged."""
        return self.ledger.rounds

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Charge one or more equal releases."""
        self.ledger.spend(self._curve(event), rounds=count)

    def get_epsilon(self, delta: float) -> float:
        """Return ε so far at another δ."""
        return rdp_to_dp(self.ledger.orders, self.ledger.rdp(), delta, self.ledger.total_variation)

    def get_delta(self, epsilon: float) -> float:
        """Return the least δ, to one part in 10⁶, at which ε so far is at most ``epsilon``."""
        low, high = -700.0, 0.0  # of ln δ
        if self.get_epsilon(np.exp(low)) <= epsilon:
            return float(np.exp(low))
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (
                (low, middle)
                if self.get_epsilon(float(np.exp(middle))) <= epsilon
                else (middle, high)
            )
        return float(np.exp(high))

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return ε so far, as Flower reports it."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, "rdp (sparse_secagg)")

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Return whether further releases would bring ε above a limit."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise ValueError("max_epsilon=None: give a limit here or in the configuration.")
        after, held = self.ledger.rdp() + count * self._curve(event), self.ledger
        return rdp_to_dp(held.orders, after, held.delta, held.total_variation) > limit

    def state_dict(self) -> dict[str, object]:
        """Return the ledger as text."""
        return {"ledger": self.ledger.to_json()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from a ledger that was written before; one that has charges is not replaced."""
        if self.ledger.rounds:
            raise ValueError("this accountant has charges already; load into a new one.")
        restored = Ledger.from_json(str(state["ledger"]))
        if restored.delta != self._config.target_delta:
            raise ValueError(f"the state is at delta={restored.delta}, not the configuration's.")
        self.ledger = restored

    def _curve(self, event: GaussianPrivacyEvent) -> NDArray[np.float64]:
        """Return the Rényi curve of one release, at the ledger's orders."""
        method, orders = self._config.sampling_method, np.asarray(self.ledger.orders)
        factor = (
            2.0 if self._config.neighboring_relation == NeighboringRelation.REPLACE_ONE else 1.0
        )
        curve = partial(gaussian_rdp, noise_multiplier=event.noise_multiplier / factor)
        rate = event.sample_size / event.population_size
        if method == SamplingMethod.POISSON:
            return poisson_subsampled_rdp(orders, curve, rate)
        if method == SamplingMethod.WITHOUT_REPLACEMENT:
            return subsampled_rdp_without_replacement(orders, curve, rate)
        return curve(orders)
