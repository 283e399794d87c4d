"""The client's half: a mod that answers the stages and lets nothing else out.

The user's training function is called in the masking stage, with the message it expects; what it
returns is turned into an update, encoded and charged by the node's agent, and masked. Its metrics
stay on the node, for they describe one client's data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.flower.node import PrivateNode
from sparse_secagg.flower.wire import RECORD, record
from sparse_secagg.named_arrays import Layout
from sparse_secagg.secagg.client import ClientSession

__all__ = ["private_mod"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
#: Flower leaves codes from 1000 on to applications.
_REFUSED = 1001


def private_mod(msg: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Take part in private rounds, within the node's own limits: ``ClientApp(mods=[private_mod])``.

    Training outside a private round is refused, and so is evaluation unless the node's policy
    allows it: both would send what depends on one client's data in clear.

    Parameters
    ----------
    msg : Message
        What the server sent.
    context : Context
        The node's; the session's state stays in it between messages.
    call_next : callable
        The training function, called in the stage in which updates are masked.

    Returns
    -------
    Message
        The answer of the stage, or an error that says why the node refuses.

    See Also
    --------
    PrivateNode : What the node keeps for it.
    PrivateFedAvg : The server's half.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> from sparse_secagg.flower import private_mod
    >>> app = ClientApp(mods=[private_mod])
    """
    kind = str(msg.metadata.message_type).partition(".")[0]
    try:
        node = PrivateNode.of(context.node_config)
        if kind == MessageType.TRAIN and RECORD in msg.content.config_records:
            return _answer(msg, context, call_next, node)
        if kind == MessageType.EVALUATE and node.evaluates:
            return call_next(msg, context)
        raise RefusedRoundError(
            f"this node answers no {kind!r} message in clear; use PrivateFedAvg on the server"
            + (", or allow it in policy.json." if kind == MessageType.EVALUATE else ".")
        )
    except RefusedRoundError as error:
        _LOG.warning("refused: %s", error)
        return Message(Error(_REFUSED, str(error)[:500]), reply_to=msg)


def _answer(
    msg: Message, context: Context, call_next: ClientAppCallable, node: PrivateNode
) -> Message:
    """Answer one stage; the session's state stays in the node's context."""
    asked = msg.content.config_records[RECORD]
    del msg.content[RECORD]  # the training function is given what it expects
    keys: dict[str, Any] = {"identity": node.identity, "roster": node.roster, "agent": node.agent}
    if asked.get("stage") == "advertise":
        session = ClientSession(_value(asked, "document", str), **keys)
        answer = session.start()
    else:
        session = ClientSession.load(_take_state(context), **keys)
        reply = session.receive(_value(asked, "message", bytes))
        if reply is None:
            reply = session.mask(_update(msg, context, call_next, _value(asked, "weight", float)))
        answer = reply
    context.state[RECORD] = ConfigRecord({"session": session.save()})
    return Message(record(message=answer), reply_to=msg)


def _take_state(context: Context) -> bytes:
    """Return the state of the session, which continues once, and forget it."""
    if RECORD not in context.state.config_records:
        raise RefusedRoundError("this node is not part of the round; it joins the next one.")
    return _value(context.state.config_records.pop(RECORD), "session", bytes)


def _value(held: ConfigRecord, key: str, kind: type[_T]) -> _T:
    value = held.get(key)
    if not isinstance(value, kind):
        raise RefusedRoundError(f"the message has no {key!r} of type {kind.__name__}.")
    return value


def _update(
    msg: Message, context: Context, call_next: ClientAppCallable, weight: float
) -> NDArray[Any]:
    """Train as the user's function says, and return the weighted update as one vector."""
    if not 0 < weight <= 1:
        raise RefusedRoundError(f"weight={weight!r} must be above 0 and at most 1.")
    try:
        given = _only_arrays(msg, "the server's message")
        layout = Layout.of(given)
        trained = call_next(msg, context)
        if trained.has_error():
            raise ValueError(f"training failed: {trained.error.reason}")
        update = layout.flatten(_only_arrays(trained, "the training function's answer"), given)
    except ValueError as error:
        raise RefusedRoundError(f"this node has no update: {error}") from None
    update *= weight
    return update


def _only_arrays(msg: Message, where: str) -> dict[str, NDArray[Any]]:
    records: Mapping[str, ArrayRecord] = msg.content.array_records
    if len(records) != 1:
        raise ValueError(f"{where} holds {len(records)} ArrayRecords; there must be one.")
    (arrays,) = records.values()
    try:
        return {name: array.numpy() for name, array in arrays.items()}
    except Exception as error:  # of whatever kind: the bytes are another party's
        raise ValueError(f"{where} holds an array that cannot be read: {error!r}") from None
