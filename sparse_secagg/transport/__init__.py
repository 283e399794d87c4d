"""A reference transport: a round between processes over TCP and TLS, for tests and small groups."""

from sparse_secagg.transport.certificates import client_context, make_certificate, server_context
from sparse_secagg.transport.client import join_round
from sparse_secagg.transport.server import serve_round

__all__ = ["client_context", "join_round", "make_certificate", "serve_round", "server_context"]
