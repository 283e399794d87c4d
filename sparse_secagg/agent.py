"""The agent of a client: it decides which rounds to take part in, encodes, and charges.

Whatever a server asks, nothing leaves that the client's own policy does not allow: the round's ε is
computed anew, with the survivors that the protocol guarantees less the colluders that the *client*
assumes, and is charged to its lifetime budget before the masked vector is made.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.clipped_rows import as_vector
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.round.client import ClientRound
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.round.policy import ClientPolicy
from sparse_secagg.secagg.budget import Budget
from sparse_secagg.secagg.identities import Roster
from sparse_secagg.secagg.quorums import (
    LOG2_FAILURE,
    has_quorums,
    n_of_fraction,
    regular_failure,
)
from sparse_secagg.secagg.setup import RoundDocument

__all__ = ["AgentPolicy", "ClientAgent"]


@dataclass(frozen=True)
class AgentPolicy:
    """What a client insists on. Only ε and δ have no default: they are the client's decision.

    Parameters
    ----------
    max_epsilon, max_delta : float
        Largest ε and δ of one round, with the survivors that the protocol guarantees, against the
        server and the colluders below.
    colluders : float
        Fraction of the cohort that the client assumes to collude with the server: to tell it their
        noise, and to confirm whatever it wants. A round that provides for more is taken at its
        word, never for fewer.
    adjacency : {"zero_out", "replace_one"}
        The neighbours for which ε must hold.
    mechanisms : tuple of str
        Noise that the client adds. "central" is not among them: it sends the vector without.
    encoders : tuple of str
        Sketches that it computes. A Gaussian matrix is not among them, for its size.
    security, masks : tuple of str
        Protocols that it takes part in.
    max_clients : int
        The largest cohort that it believes in. A server that claims more clients than there are is
        sent less noise than it needs.
    dim : int, optional
        The length of its vectors.
    max_dim : int
        The longest vectors that it is ready to work for, where ``dim`` is not given.
    max_local_epsilon : float
        Largest ε of its own bytes, were the masks to fail. Infinite by default, for it is large in
        every round whose noise is divided among many.

    See Also
    --------
    ClientAgent : Decides by this policy, and charges a budget.
    Budget : What the client may spend in a lifetime.

    Examples
    --------
    >>> from sparse_secagg import AgentPolicy
    >>> AgentPolicy(max_epsilon=1.0, max_delta=1e-5).mechanisms
    ('ddg', 'skellam')
    """

    max_epsilon: float
    max_delta: float
    colluders: float = 0.05
    adjacency: str = "zero_out"
    mechanisms: tuple[str, ...] = ("ddg", "skellam")
    encoders: tuple[str, ...] = ("blocks", "count_sketch", "hadamard", "identity")
    security: tuple[str, ...] = ("malicious",)
    masks: tuple[str, ...] = ("x25519",)
    max_clients: int = 10_000
    dim: int | None = None
    max_dim: int = 100_000_000
    max_local_epsilon: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < 1:
            raise ValueError(f"colluders={self.colluders!r} must be a fraction from 0 to below 1.")
        self._limits()

    def _limits(self) -> ClientPolicy:
        """Return the limits on a configuration alone; they check themselves."""
        return ClientPolicy(
            # ε is checked by the agent, with the colluders that the client assumes
            max_epsilon=math.inf if self.max_epsilon > 0 else self.max_epsilon,
            max_delta=self.max_delta,
            dim=self.dim,
            adjacency=self.adjacency,
            max_clients=self.max_clients,
            max_local_epsilon=self.max_local_epsilon,
        )

    def check(self, document: RoundDocument, config: RoundConfig) -> None:
        """Raise :class:`RefusedRoundError` unless the round is of a kind that the client joins."""
        for name, value, allowed in (
            ("security", document.security, self.security),
            ("masks", document.masks, self.masks),
            ("mechanism", config.mechanism.mechanism, self.mechanisms),
            *(("encoder", encoder, self.encoders) for encoder in _encoder_names(config.encoder)),
        ):
            if value not in allowed:
                raise RefusedRoundError(
                    f"the round has {name}={str(value)[:50]!r}; this client takes part with "
                    f"{', '.join(allowed)} only."
                )
        if not 1 <= config.dim <= (self.max_dim if self.dim is None else self.dim):
            raise RefusedRoundError(
                f"the round is about vectors of length {config.dim}, longer than this client's "
                f"limit; if they are, raise max_dim={self.max_dim}."
            )
        if document.n_clients > self.max_clients:
            raise RefusedRoundError(
                f"the round claims {document.n_clients} clients, more than this client believes "
                f"in; if there are that many, raise max_clients={self.max_clients}."
            )
        self._limits().check(config)

    def check_quorums(self, document: RoundDocument) -> None:
        """Raise :class:`RefusedRoundError` if its colluders could confirm two lists."""
        n, t, k = document.n_clients, document.share_threshold, document.neighbors
        if not document.lying_server:
            return
        if k is None:
            safe = has_quorums(n, t, n, n_of_fraction(self.colluders, n))
        else:
            # an odd k joins opposite clients too, which the argument for the circle leaves out
            safe = k % 2 == 0 and regular_failure(n, k, t, self.colluders) <= LOG2_FAILURE
        if not safe:
            raise RefusedRoundError(
                f"the round has share_threshold={t} of {document.n_members} members of a "
                f"neighbourhood, neighbors={k}: a server with the {self.colluders:.3g} of all "
                "clients that this client takes for colluders could unmask it. Raise either; "
                "graph_parameters gives values that hold."
            )


class ClientAgent:
    """Policy and budget of one client, for all its rounds with all servers.

    Parameters
    ----------
    policy : AgentPolicy
        What it insists on in each round.
    budget : Budget or path
        What it may spend in its life; a path opens an existing file.

    See Also
    --------
    AgentPolicy : The client's limits.
    ClientSession : Asks the agent before anything is sent.

    Examples
    --------
    >>> import os, tempfile
    >>> from sparse_secagg.agent import AgentPolicy, ClientAgent
    >>> from sparse_secagg.secagg.budget import Budget
    >>> path = os.path.join(tempfile.mkdtemp(), "budget.sqlite")
    >>> agent = ClientAgent(AgentPolicy(1.0, 1e-5), Budget(path, epsilon=8.0, delta=1e-5))
    >>> agent.budget.left
    8.0
    """

    def __init__(self, policy: AgentPolicy, budget: Budget | str | os.PathLike[str]) -> None:
        self.policy = policy
        self.budget = budget if isinstance(budget, Budget) else Budget(budget)

    def admit(self, document: RoundDocument, roster: Roster | None) -> None:
        """Raise :class:`RefusedRoundError` unless the client may take part in the round."""
        config, privacy = self._agree(document)
        if roster is not None:
            self.budget.meet(roster.name, roster.version, roster.digest)
        self.budget.check(config.round_id, privacy)

    def release(self, document: RoundDocument, x: Any) -> NDArray[np.uint64]:
        """Charge the round, durably, and return the client's message, ready to be masked."""
        config, privacy = self._agree(document)
        vector = as_vector(x)
        if vector.shape != (config.dim,):
            raise RefusedRoundError(
                f"x has shape {vector.shape}, but the round is about vectors of shape "
                f"({config.dim},)."
            )
        self.budget.charge(config.round_id, privacy)
        return np.asarray(_work(config.to_json()).encode(vector[None, :])[0])

    def claim(self, token: bytes) -> None:
        """Raise :class:`RefusedRoundError` if the saved state with this token has continued."""
        self.budget.claim(token)

    def privacy(self, document: RoundDocument) -> RoundPrivacy:
        """Return what a round costs this client, at worst."""
        return self._agree(document)[1]

    def _agree(self, document: RoundDocument) -> tuple[RoundConfig, RoundPrivacy]:
        """Return a round's configuration and cost; refuse it for whatever is wrong with it."""
        try:
            config = read_config(document)
            self.policy.check(document, config)
            privacy = self._privacy(document, config)
            self.policy.check_quorums(document)
            return config, privacy
        except RefusedRoundError:
            raise
        except Exception as error:
            raise RefusedRoundError(f"the round cannot be used: {error!r}"[:300]) from None

    def _privacy(self, document: RoundDocument, config: RoundConfig) -> RoundPrivacy:
        """Return the round's privacy as the client sees it; raise if it is more than it allows."""
        assumed = n_of_fraction(self.policy.colluders, document.n_clients)
        colluders = max(config.mechanism.colluders, assumed)
        work = _work(config.to_json())
        if colluders >= document.threshold:
            raise RefusedRoundError(
                f"the round ends with {document.threshold} survivors, of whom this client takes "
                f"{colluders} for colluders; nobody would be left to hide among."
            )
        privacy = work.mechanism.privacy(document.threshold, colluders=colluders)
        # Against the server, whom nobody trusts here; with no colluders, it is alone.
        epsilon = privacy.epsilon("colluders")
        if not epsilon <= self.policy.max_epsilon:
            raise RefusedRoundError(
                f"the round costs epsilon={epsilon:.4g} with {document.threshold} survivors and "
                f"{colluders} colluders, above this client's limit {self.policy.max_epsilon:.4g}; "
                "ask for more noise or more clients."
            )
        return privacy


def read_config(document: RoundDocument) -> RoundConfig:
    """Return the configuration in a round's document; raise if the two do not fit each other."""
    config = RoundConfig.from_json(document.context)
    p = config.mechanism
    for what, announced, meant in (
        ("modulus", document.modulus, p.modulus),
        ("length", document.length, p.padded_dim),
        ("n_clients", document.n_clients, p.n_clients),
    ):
        if announced != meant:
            raise RefusedRoundError(
                f"the round's document has {what}={announced}, its configuration {meant}."
            )
    if config.min_survivors is not None and document.threshold < config.min_survivors:
        raise RefusedRoundError(
            f"the round's document has threshold={document.threshold}, below min_survivors="
            f"{config.min_survivors}, for which its noise is sized."
        )
    return config


@lru_cache(maxsize=4)
def _work(text: str) -> ClientRound:
    return ClientRound(RoundConfig.from_json(text))


def _encoder_names(description: Any) -> list[Any]:
    """Return the names of an encoder and of those it is made of."""
    if not isinstance(description, dict):
        return [description]
    names = [description.get("name")]
    if "encoder" in description:
        names += _encoder_names(description["encoder"])
    inner = description.get("encoders", {})
    for part in inner.values() if isinstance(inner, dict) else [inner]:
        names += _encoder_names(part)
    return names
