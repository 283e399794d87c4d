"""What a node keeps for private rounds, in one folder that it names itself.

    identity.json   its signing key                roster.json   who takes part in the rounds
    policy.json     its limits for each round      budget.sqlite its lifetime budget

None of it comes from the server: a server that chose its clients' limits would choose none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from sparse_secagg.agent import AgentPolicy, ClientAgent
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg.budget import Budget
from sparse_secagg.secagg.identities import Identity, Roster

__all__ = ["FOLDER_KEY", "FOLDER_VARIABLE", "PrivateNode"]

#: Where a node names its folder: in its configuration, or in its environment.
FOLDER_KEY = "private-node"
FOLDER_VARIABLE = "SPARSE_SECAGG_NODE"


@dataclass(frozen=True)
class PrivateNode:
    """Identity, roster, limits and budget of one node.

    Parameters
    ----------
    identity : Identity
        Its signing key.
    roster : Roster
        Who takes part.
    agent : ClientAgent
        Its limits and its lifetime budget.
    evaluates : bool
        Whether it answers requests for evaluation. Their results leave it in clear.

    See Also
    --------
    private_mod : Loads it when a message comes.
    sparse_secagg.AgentPolicy : The limits.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sparse_secagg import AgentPolicy, Roster
    >>> from sparse_secagg.flower import PrivateNode
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = AgentPolicy(max_epsilon=1.0, max_delta=1e-5)
    ...     identity = PrivateNode.create(
    ...         folder, policy, lifetime_epsilon=8.0, lifetime_delta=1e-5
    ...     )
    ...     Roster("study").add("hospital 1", identity.public).save(Path(folder, "roster.json"))
    ...     PrivateNode.load(folder).evaluates
    False
    """

    identity: Identity
    roster: Roster
    agent: ClientAgent
    evaluates: bool = False

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        policy: AgentPolicy,
        *,
        lifetime_epsilon: float,
        lifetime_delta: float,
        evaluates: bool = False,
    ) -> Identity:
        """Make a node's folder, except for the roster; return the identity to enrol.

        Parameters
        ----------
        folder : path
            Made if it is not there; must not hold another node's files.
        policy : AgentPolicy
            The node's limits for each round.
        lifetime_epsilon, lifetime_delta : float
            What it may spend in all rounds with all servers.
        evaluates : bool
            Whether it evaluates models for the server, in clear.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        identity = Identity.new()
        identity.save(place / "identity.json")
        limits = asdict(policy) | {"evaluates": bool(evaluates)}
        (place / "policy.json").write_text(json.dumps(limits, indent=2))
        Budget(place / "budget.sqlite", lifetime_epsilon, lifetime_delta)
        return identity

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the node whose files are in a folder.

        Raises
        ------
        RefusedRoundError
            A file is missing or is not what it should be; the message names it.
        """
        place = Path(folder)
        try:
            limits = json.loads((place / "policy.json").read_text())
            evaluates = bool(limits.pop("evaluates", False))
            agent = ClientAgent(_policy(limits), Budget(place / "budget.sqlite"))
            identity = Identity.load(place / "identity.json")
            return cls(identity, Roster.load(place / "roster.json"), agent, evaluates)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise RefusedRoundError(
                f"this node is not ready for private rounds: {error}. PrivateNode.create makes its "
                "folder; roster.json is added when everybody is enrolled."
            ) from None

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Self:
        """Return the node that Flower's node configuration, or the environment, names.

        The folder's name may hold keys of the configuration, as in ``nodes/{partition-id}``.
        """
        folder = node_config.get(FOLDER_KEY) or os.environ.get(FOLDER_VARIABLE)
        if not folder:
            raise RefusedRoundError(
                f"this node names no folder for private rounds: start it with --node-config "
                f"'{FOLDER_KEY}=\"FOLDER\"', or set {FOLDER_VARIABLE}."
            )
        text = str(folder)
        for key, value in node_config.items():
            text = text.replace("{" + key + "}", str(value))
        return cls.load(text)


def _policy(limits: dict[str, Any]) -> AgentPolicy:
    known = {field.name for field in fields(AgentPolicy)}
    if unknown := sorted(set(limits) - known):
        raise ValueError(f"policy.json has {unknown[0]!r}; known are {', '.join(sorted(known))}")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in limits.items()}
    return AgentPolicy(**values)
