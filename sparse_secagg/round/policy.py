"""What a client insists on before it answers a round, whatever a server asks."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.privacy.curves import sensitivity_factor
from sparse_secagg.round.client import client_round
from sparse_secagg.round.config import RoundConfig, check_fields, is_noiseless
from sparse_secagg.validation import Constraint, either, nothing, whole

__all__ = ["ClientPolicy"]


def _limit(largest: float) -> Constraint:
    """Return the constraint of a limit, which may be infinite where ``largest`` is."""
    return Constraint(
        f"be a number above 0, at most {largest:g}",
        lambda value: (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= largest
        ),
    )


#: One check-and-remember of a round at a time, whichever policy it is in.
_ANSWERING = threading.Lock()


@dataclass
class ClientPolicy:
    """What a client insists on, whatever a server asks.

    Parameters
    ----------
    max_epsilon, max_delta : float
        Largest ε of a round, with its guaranteed survivors, and largest δ that the client agrees
        to. There is no default: this is the client's decision. Where the round's ``min_survivors``
        is None nobody guarantees any number, and ε is what the noise of all clients gives.
    dim : int, optional
        The length its vectors have.
    allow_trusted_server : bool
        Whether to send messages without noise, which central privacy needs: whoever receives them
        sees the client's vector.
    adjacency : {"zero_out", "replace_one"}
        The neighbours for which the round's ε must hold. "replace_one" refuses a round that
        accounts for "zero_out" only; "zero_out" takes both, the other being the stronger.
    max_clients : int or None
        The largest cohort that the client believes in. A server that claims more clients than there
        are is sent less noise than it needs. None believes in any.
    max_local_epsilon : float
        Largest ε of the client's own bytes (:attr:`RoundConfig.local_epsilon`): what protects it if
        secure aggregation fails. Infinite by default, for it is large in every distributed round.
    seen_rounds : set of str
        Rounds taken part in; :meth:`check` adds to it. It lives as long as the policy.

    See Also
    --------
    client_encode : Refuses what the policy does not allow.
    AgentPolicy : The same between parties that do not trust each other.

    Examples
    --------
    >>> from sparse_secagg import ClientPolicy
    >>> ClientPolicy(max_epsilon=1.0, max_delta=1e-5).max_clients
    10000
    """

    max_epsilon: float
    max_delta: float
    dim: int | None = None
    allow_trusted_server: bool = False
    adjacency: str = "zero_out"
    max_clients: int | None = 10_000
    max_local_epsilon: float = math.inf
    seen_rounds: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        _limit(math.inf).check("max_epsilon", self.max_epsilon)
        _limit(1.0).check("max_delta", self.max_delta)
        _limit(math.inf).check("max_local_epsilon", self.max_local_epsilon)
        either(nothing, whole(1)).check("max_clients", self.max_clients)
        sensitivity_factor(self.adjacency)

    def check(self, config: RoundConfig) -> None:
        """Raise :class:`RefusedRoundError` unless the round is acceptable; remember it if it is."""
        check_fields(config)
        self._check_limits(config)
        try:
            actual = client_round(config).epsilon
        except RefusedRoundError:
            raise
        except Exception as error:  # whatever a configuration breaks, it is refused for it
            raise RefusedRoundError(f"the configuration cannot be used: {error}") from error
        if not actual <= self.max_epsilon:
            raise RefusedRoundError(
                f"the round costs epsilon={actual:.4g}, above this client's limit "
                f"{self.max_epsilon:.4g}; ask for more noise or more clients."
            )
        if self.max_local_epsilon < math.inf:
            self._check_own_message(config)
        with _ANSWERING:
            self._check_new(config)
            self.seen_rounds.add(config.round_id)

    def _check_own_message(self, config: RoundConfig) -> None:
        local = config.local_epsilon
        if not local <= self.max_local_epsilon:
            raise RefusedRoundError(
                f"this client's own message would have epsilon={local:.4g}, above its limit "
                f"max_local_epsilon={self.max_local_epsilon:.4g}."
            )

    def _check_limits(self, config: RoundConfig) -> None:
        p = config.mechanism
        if self.dim is not None and config.dim != self.dim:
            raise RefusedRoundError(
                f"the round is about vectors of length {config.dim}, this client's have {self.dim}."
            )
        self._check_new(config)
        if not config.delta <= self.max_delta:
            raise RefusedRoundError(
                f"the round's delta={config.delta} exceeds this client's limit {self.max_delta}."
            )
        if is_noiseless(p) and not self.allow_trusted_server:
            raise RefusedRoundError(
                "the round asks for messages without noise (a trusted server), which this client "
                "does not send; use mechanism='ddg' or 'skellam', or allow_trusted_server=True."
            )
        if sensitivity_factor(p.adjacency) < sensitivity_factor(self.adjacency):
            raise RefusedRoundError(
                f"the round accounts for adjacency={p.adjacency!r}, which is weaker than this "
                f"client's {self.adjacency!r}."
            )
        if self.max_clients is not None and p.n_clients > self.max_clients:
            raise RefusedRoundError(
                f"the round claims {p.n_clients} clients, more than this client believes in; if "
                f"there are that many, raise max_clients={self.max_clients}."
            )

    def _check_new(self, config: RoundConfig) -> None:
        if config.round_id in self.seen_rounds:
            raise RefusedRoundError(
                f"round_id={config.round_id!r} was answered before; answering twice would double "
                "the privacy spent."
            )
