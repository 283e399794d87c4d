"""The server's half: federated averaging in which it sees a masked, noisy sum and nothing else.

A round of secure aggregation has five stages, and Flower gives a strategy two calls a round. Keys
and shares travel inside ``configure_train``; the masked updates are the answers to its messages;
confirmations and shares for unmasking travel inside ``aggregate_train``:

    Δ = decode(Σ masked updates mod M)      v ← β·v + Δ      model ← model + η·v
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from numpy.typing import NDArray

from sparse_secagg.announcement import announce_round
from sparse_secagg.flower.wire import body_of, record
from sparse_secagg.named_arrays import Layout
from sparse_secagg.privacy import Ledger
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.round.aggregate import Aggregate
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.round.parts import parts_of
from sparse_secagg.round.run import open_ledger
from sparse_secagg.round.spec import RoundSpec
from sparse_secagg.secagg.errors import BelowThresholdError, InvalidMessageError
from sparse_secagg.secagg.identities import Roster
from sparse_secagg.secagg.server import ServerSession

__all__ = ["PrivateFedAvg"]

_LOG = logging.getLogger("flwr")


class PrivateFedAvg(FedAvg):
    """Federated averaging with distributed differential privacy and secure aggregation.

    Parameters
    ----------
    spec : RoundSpec
        The private round: ε of all ``rounds`` together, clip, sketch, bits. Its ``secagg`` is not
        used, for the nodes themselves run the protocol.
    roster : Roster or path
        Who takes part; every node has the same file.
    rounds : int
        Rounds that share the spec's ε. Further ones are not run.
    ledger : Ledger or path, optional
        Is charged before a masked update is asked for. One in memory by default.
    max_epsilon : float, optional
        No round is begun that could bring the ledger, against the server and its colluders, above
        this. Default: the spec's ε.
    decoder : str or Solver
        Training keeps to unbiased decoders; "linear" is the one to use.
    server_learning_rate, momentum : float
        Step length and momentum of the server.
    weights : mapping of member to weight, optional
        Public weights of the members of the roster, by name; all equal by default. They must not
        depend on private data: numbers of examples usually do.
    corrupt, dropout : float
        Fractions of the nodes that may collude with the server, and that may drop out.
    stage_seconds, wait_seconds : float
        How long a stage waits for answers, training among them, and how long the first round
        waits for nodes.
    fraction_evaluate : float
        As in Flower's FedAvg, but 0 by default: results of evaluation leave the nodes in clear.
    random_state : int, RandomState, Generator or None
        Public randomness: sketches and rotations.

    Attributes
    ----------
    aggregate_ : Aggregate
        The last round's sketch, noise level, privacy and survivors; decodes as often as asked.
    ledger : Ledger
        What was spent.

    Raises
    ------
    ValueError
        If the clip is adaptive, or another argument is out of range; the message names it.

    See Also
    --------
    private_mod : The nodes' half.
    sparse_secagg.RoundSpec : What one round is.

    Notes
    -----
    Metrics of a round are ``epsilon-server``, ``epsilon-colluders``, ``epsilon-release`` (so far,
    all rounds), ``survivors`` and ``bytes-per-client`` (the most that a node sent). What training
    functions report about their own data stays on the nodes.

    Examples
    --------
    >>> from sparse_secagg import Identity, RoundSpec, Roster
    >>> from sparse_secagg.flower import PrivateFedAvg
    >>> roster = Roster("study")
    >>> for i in range(10):
    ...     roster = roster.add(f"hospital {i}", Identity.new().public)
    >>> strategy = PrivateFedAvg(RoundSpec(epsilon=4.0, compression=10), roster, rounds=30)
    >>> strategy.spec.rounds, strategy.max_epsilon
    (30, 4.0)
    """

    def __init__(
        self,
        spec: RoundSpec,
        roster: Roster | str | os.PathLike[str],
        *,
        rounds: int,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        max_epsilon: float | None = None,
        decoder: Any = "linear",
        server_learning_rate: float = 1.0,
        momentum: float = 0.0,
        weights: Mapping[str, float] | None = None,
        corrupt: float = 0.05,
        dropout: float = 0.05,
        stage_seconds: float = 600.0,
        wait_seconds: float = 600.0,
        fraction_evaluate: float = 0.0,
        random_state: Any = None,
    ) -> None:
        super().__init__(fraction_evaluate=fraction_evaluate)
        if spec.clip_norm == "adaptive":
            raise ValueError(
                "clip_norm='adaptive' needs an answer of each client that is not masked; give the "
                "ℓ₂ clip of an update as a number."
            )
        self.roster = roster if isinstance(roster, Roster) else Roster.load(roster)
        self.spec = spec.replace(rounds=rounds)
        self.ledger = open_ledger(Ledger(spec.delta) if ledger is None else ledger, spec.delta)
        self.max_epsilon = _limit(spec) if max_epsilon is None else max_epsilon
        self.decoder = decoder
        self.server_learning_rate, self.momentum = server_learning_rate, momentum
        self.weights = _weights(weights, self.roster)
        self.corrupt, self.dropout = corrupt, dropout
        self.stage_seconds, self.wait_seconds = stage_seconds, wait_seconds
        self.random_state = np.random.default_rng(random_state)
        self.aggregate_: Aggregate | None = None
        self._round: _Round | None = None
        self._velocity: NDArray[np.float64] | None = None

    def summary(self) -> None:
        """Log what the strategy does."""
        spec, group = self.spec, self.roster
        _LOG.info("\t├──> %d clients of the roster %r", len(group), group.name)
        _LOG.info("\t├──> (%s, %s)-DP for %d rounds", spec.epsilon, spec.delta, spec.rounds)
        _LOG.info("\t└──> ε so far: %.4g (server)", self.ledger.epsilon("server"))

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        *args: Any,
        **options: Any,
    ) -> Result:
        """Run the rounds; ``timeout``, of the masking stage, is ``stage_seconds`` by default."""
        seconds = self.stage_seconds if timeout is None else timeout
        return super().start(grid, initial_arrays, num_rounds, seconds, *args, **options)

    # -- training ------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Run the stages before the masked updates, charge, and ask for these."""
        self._round = None
        model = {name: array.numpy() for name, array in arrays.items()}
        layout = Layout.of(model)
        work = _Round.announce(self, model, layout, grid)
        if not self._affordable(work):
            return []
        try:
            work.advertise(self._nodes(grid))
            work.exchange()  # shares
        except BelowThresholdError as error:
            _LOG.warning("round %d ends: %s", server_round, error)
            return []
        work.charge(self.ledger)
        self._round = work
        config["server-round"] = server_round
        records = {self.arrayrecord_key: arrays, self.configrecord_key: config}
        return work.messages(records, self.weights)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the masked updates, have them unmasked as a sum, decode it and step."""
        work, self._round = self._round, None
        if work is None:
            return None, self._metrics(0, 0)
        try:
            work.take(replies)
            for _ in range(2):  # confirm, unmask
                work.exchange()
            self.aggregate_ = work.aggregate(self.ledger, self.weights, self.decoder)
        except BelowThresholdError as error:
            _LOG.warning("round %d ends: %s", server_round, error)
            return None, self._metrics(0, work.bytes_per_client)
        step = np.asarray(self.aggregate_.decode(), dtype=np.float64)
        if self._velocity is None or len(self._velocity) != len(step):
            self._velocity = np.zeros_like(step)
        self._velocity = self.momentum * self._velocity + step
        moved = work.layout.flatten(work.model) + self.server_learning_rate * self._velocity
        model = work.layout.unflatten(moved, like=work.model)
        record_ = ArrayRecord({name: Array(array) for name, array in model.items()})
        return record_, self._metrics(self.aggregate_.n_survivors, work.bytes_per_client)

    def _affordable(self, work: _Round) -> bool:
        """Return whether the round keeps to the budget, whoever survives."""
        after = self.ledger.epsilon_with(work.privacy, "colluders")
        within = bool(after <= self.max_epsilon * (1 + 1e-9))
        if not within:
            _LOG.warning(
                "no further round: epsilon would be %.4g, above max_epsilon=%.4g; %d rounds were "
                "charged.", after, self.max_epsilon, self.ledger.rounds,
            )  # fmt: skip
        return within

    def _nodes(self, grid: Grid) -> list[int]:
        """Return the nodes there are, once everybody on the roster can be among them."""
        end = time.monotonic() + self.wait_seconds
        while len(nodes := list(grid.get_node_ids())) < len(self.roster):
            if time.monotonic() > end:
                break
            time.sleep(0.2)
        self.wait_seconds = 0.0  # later rounds go on with the nodes there are
        return nodes

    def _metrics(self, survivors: int, sent: int) -> MetricRecord:
        spent = {f"epsilon-{who}": self.ledger.epsilon(who) for who in _OBSERVERS}
        return MetricRecord(spent | {"survivors": survivors, "bytes-per-client": sent})


_OBSERVERS = ("server", "colluders", "release")


@dataclass(eq=False)
class _Round:
    """One round over Flower's grid: its session, and which node is which client."""

    session: ServerSession
    config: RoundConfig
    privacy: RoundPrivacy
    model: dict[str, NDArray[Any]]
    layout: Layout
    grid: Grid
    seconds: float
    node_of: dict[int, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    charged: int | None = None

    @classmethod
    def announce(
        cls, strategy: PrivateFedAvg, model: dict[str, NDArray[Any]], layout: Layout, grid: Grid
    ) -> _Round:
        """Make the round's document, and know what it costs at worst."""
        document = announce_round(
            strategy.spec, layout.dim, strategy.roster, corrupt=strategy.corrupt,
            dropout=strategy.dropout, random_state=strategy.random_state,
        )  # fmt: skip
        session = ServerSession(document, roster=strategy.roster)
        config = RoundConfig.from_json(document.context)
        privacy = parts_of(config).privacy(document.threshold)
        return cls(session, config, privacy, model, layout, grid, strategy.stage_seconds)

    @property
    def bytes_per_client(self) -> int:
        """The most that a node has sent."""
        return max(self.sent.values(), default=0)

    def advertise(self, nodes: list[int]) -> None:
        """Announce the round to all nodes, and learn who they are from what they sign."""
        document = self.session.document.to_json()
        content = {n: record(stage="advertise", document=document) for n in nodes}
        for reply in self._ask(content):
            body = body_of(reply)
            if body is None:
                continue
            try:
                client = self.session.sender_of(body)
                self.session.receive(body, client)
            except InvalidMessageError as error:
                _LOG.warning("%s", error)
                continue
            self.node_of[client] = int(reply.metadata.src_node_id)
            self.sent[client] = len(body)
        self.session.close_stage()

    def exchange(self) -> None:
        """Run one stage in which nodes answer the session's messages."""
        content = {
            self.node_of[int(i)]: record(stage=self.session.stage, message=self._message(int(i)))
            for i in self.session.waiting_for
        }
        self.take(self._ask(content))

    def take(self, replies: Iterable[Message]) -> None:
        """Take the answers of a stage and end it; whoever did not answer is out."""
        client_of = {node: client for client, node in self.node_of.items()}
        for reply in replies:
            client, body = client_of.get(int(reply.metadata.src_node_id)), body_of(reply)
            if client is None or body is None:
                if reply.has_error():
                    _LOG.warning(
                        "node %s: %s", reply.metadata.src_node_id, reply.error.reason[:300]
                    )
                continue
            try:
                self.session.receive(body, client)
            except InvalidMessageError as error:
                _LOG.warning("%s", error)
                continue
            self.sent[client] += len(body)
        self.session.close_stage()

    def messages(self, records: Mapping[str, Any], weights: NDArray[np.float64]) -> list[Message]:
        """Return what asks for the masked updates: the model, beside the stage's own message."""
        found = []
        for i in self.session.waiting_for:
            content = record(
                stage=self.session.stage, message=self._message(int(i)), weight=float(weights[i])
            )
            for name, value in records.items():
                content[name] = value
            found.append(Message(content, self.node_of[int(i)], MessageType.TRAIN))
        return found

    def charge(self, ledger: Ledger) -> None:
        """Charge the round for the fewest survivors there may be."""
        self.charged = ledger.charge(self.privacy)

    def aggregate(self, ledger: Ledger, weights: NDArray[np.float64], decoder: Any) -> Aggregate:
        """Return the round's result, and settle its charge for those who survived."""
        survivors, work = self.session.survivors, parts_of(self.config)
        k = len(survivors)
        privacy = work.privacy(k)
        assert self.charged is not None
        ledger.settle(self.charged, privacy)
        scale = k / float(weights[survivors].sum())
        return Aggregate(
            config=self.config,
            sketch=scale * work.decode(self.session.total(), k),
            operator=work.encoder.operator_,
            noise_std=float(scale * work.mechanism.noise_std(k)),
            privacy=privacy,
            survivors=survivors,
            bytes_per_client=self.bytes_per_client,
            decoder=decoder,
        )

    def _message(self, client: int) -> bytes:
        return self.session.message_for(client)

    def _ask(self, content: Mapping[int, Any]) -> Iterable[Message]:
        asked = [Message(body, node, MessageType.TRAIN) for node, body in content.items()]
        return list(self.grid.send_and_receive(asked, timeout=self.seconds))


def _limit(spec: RoundSpec) -> float:
    return math.inf if spec.epsilon is None or spec.noise_multiplier is not None else spec.epsilon


def _weights(weights: Mapping[str, float] | None, roster: Roster) -> NDArray[np.float64]:
    """Return the weights of a roster's members, the largest of which is 1."""
    if weights is None:
        return np.ones(len(roster))
    names = [member.name for member in roster.members]
    if odd := sorted(set(names) ^ set(weights)):
        raise ValueError(f"weights must name each member of the roster; {odd[0]!r} is in one only.")
    values = np.array([weights[name] for name in names], dtype=np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("weights must be positive and finite.")
    return np.asarray(values / values.max())
