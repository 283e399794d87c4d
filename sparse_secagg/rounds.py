"""The round between parties, under the name that it had first; see :mod:`sparse_secagg.round`."""

from __future__ import annotations

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.round.calibration import sketch_clip_norm
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.round.decoders import make_decoder
from sparse_secagg.round.messages import (
    Estimate,
    aggregate,
    client_encode,
    server_decode,
    unpack_message,
)
from sparse_secagg.round.parts import Round
from sparse_secagg.round.policy import ClientPolicy

__all__ = [
    "ClientPolicy",
    "Estimate",
    "RefusedRoundError",
    "Round",
    "RoundConfig",
    "aggregate",
    "client_encode",
    "make_decoder",
    "server_decode",
    "sketch_clip_norm",
    "unpack_message",
]
