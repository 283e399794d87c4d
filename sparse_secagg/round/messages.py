"""A round between parties that share nothing but bytes: one client's message, and their sum.

A client answers a :class:`RoundConfig` with :func:`client_encode`: clip, sketch, and the integer
message of the mechanism. The server adds messages modulo M and inverts the steps with
:func:`server_decode`.

A client trusts no number it is sent: it recomputes ε from the noise it will really add and refuses
what exceeds its own :class:`ClientPolicy`. What it answers is *not masked*: a message carries one
share of the noise, and its own ε (:attr:`RoundConfig.local_epsilon`) is far above the round's.
Messages are for secure aggregation, or for one process that everybody trusts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.clipped_rows import as_vector
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.privacy.observers import Costed, RoundPrivacy
from sparse_secagg.round.client import client_round
from sparse_secagg.round.config import DIGEST_BYTES, RoundConfig
from sparse_secagg.round.policy import ClientPolicy
from sparse_secagg.secagg.errors import BelowThresholdError
from sparse_secagg.secagg.wire import pack, packed_size, unpack

__all__ = ["Estimate", "aggregate", "client_encode", "server_decode", "unpack_message"]

_MAGIC = b"SSA1"


@dataclass(frozen=True, eq=False)
class Estimate(Costed):
    """A decoded mean and what it cost. NumPy takes it for the array ``mean``.

    Parameters
    ----------
    mean : ndarray of shape (d,)
        Estimate of the survivors' mean.
    privacy : RoundPrivacy
        What the round revealed, with the noise that survived.
    n_survivors : int
        Clients in the sum.
    noise_std : float
        Standard deviation of the noise in each coordinate of the mean sketch.

    See Also
    --------
    sparse_secagg.server_decode : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import ClientPolicy, RoundSpec, aggregate, client_encode, server_decode
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(5, 3)
    >>> policies = [ClientPolicy(max_epsilon=4.0, max_delta=1e-5) for _ in range(3)]
    >>> messages = [client_encode(config, np.zeros(5), policy=policy) for policy in policies]
    >>> estimate = server_decode(config, *aggregate(config, messages))
    >>> np.shape(estimate), estimate.n_survivors, round(estimate.epsilon, 2)
    ((5,), 3, 4.0)
    """

    mean: NDArray[np.float64] = field(repr=False)
    privacy: RoundPrivacy = field(repr=False)
    n_survivors: int
    noise_std: float

    def __getitem__(self, index: Any) -> Any:
        return self.mean[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.mean, dtype=dtype, copy=copy)


def client_encode(
    config: RoundConfig | str | bytes,
    x: Any,
    *,
    policy: ClientPolicy | None = None,
    rng: Randomness | None = None,
) -> bytes:
    """Return one client's message, for a trusted process: its sketch with noise, packed at b bits.

    **The bytes are not masked.** They carry this client's share of the noise and nothing more, and
    whoever sees them alone learns what ``config.local_epsilon`` says, which is far more than the
    round's ε. They must not leave a trusted process except through secure aggregation, which shows
    the sum of all messages only.

    Parameters
    ----------
    config : RoundConfig, str or bytes
        The round, or its JSON.
    x : array-like or torch.Tensor of shape (d,)
        The client's vector; arrays of floats, memory maps too, are not copied. With NaN or Inf in
        it, the client contributes the zero vector.
    policy : ClientPolicy
        The client's limits; without them nothing is sent.
    rng : Randomness, optional
        Private randomness; the operating system's by default.

    Returns
    -------
    bytes
        The message: for secure aggregation, not for the open.

    Raises
    ------
    RefusedRoundError
        The configuration is not valid, or not acceptable to the policy. Nothing was spent.

    See Also
    --------
    aggregate : Adds messages.
    ClientSession : Encodes and masks, between parties.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import ClientPolicy, RoundSpec, client_encode
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(100, 50)
    >>> policy = ClientPolicy(max_epsilon=4.0, max_delta=1e-5)
    >>> len(client_encode(config, np.zeros(100), policy=policy)) >= 100 * 18 // 8
    True
    """
    if policy is None:
        raise ValueError(
            "policy=None: a client answers only within limits of its own; pass, for example, "
            "policy=ClientPolicy(max_epsilon=1.0, max_delta=1e-5)."
        )
    if not isinstance(config, RoundConfig):
        config = RoundConfig.from_json(config)
    x = as_vector(x)
    if x.shape != (config.dim,):
        raise RefusedRoundError(
            f"x has shape {x.shape}, but the round is about vectors of shape ({config.dim},)."
        )
    policy.check(config)
    message = client_round(config).encode(x[None, :], rng)[0]
    return _MAGIC + config.digest + pack(message, config.mechanism.n_bits)


def aggregate(
    config: RoundConfig, messages: Iterable[bytes], *, on_invalid: str = "raise"
) -> tuple[NDArray[np.uint64], list[int]]:
    """Add messages modulo M in a trusted process: what ideal secure aggregation shows the server.

    Parameters
    ----------
    config : RoundConfig
        The round.
    messages : iterable of bytes
        What clients sent.
    on_invalid : {"raise", "exclude"}
        Whether a malformed message ends the aggregation or is left out.

    Returns
    -------
    total : ndarray of uint64, shape (D,)
        The sum modulo M.
    survivors : list of int
        Which messages are in it.

    Raises
    ------
    BelowThresholdError
        Fewer than ``config.min_survivors`` messages are valid. Nothing is returned.

    See Also
    --------
    client_encode : Makes the messages.
    server_decode : Decodes the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import ClientPolicy, RoundSpec, aggregate, client_encode
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(5, 3)
    >>> policies = [ClientPolicy(max_epsilon=4.0, max_delta=1e-5) for _ in range(3)]
    >>> messages = [client_encode(config, np.zeros(5), policy=policy) for policy in policies]
    >>> total, survivors = aggregate(config, messages)
    >>> survivors
    [0, 1, 2]
    """
    if on_invalid not in ("raise", "exclude"):
        raise ValueError(f"on_invalid={on_invalid!r} must be 'raise' or 'exclude'.")
    mask = np.uint64(config.mechanism.modulus - 1)
    total = np.zeros(config.mechanism.padded_dim, dtype=np.uint64)
    survivors: list[int] = []
    seen: set[bytes] = set()
    for i, message in enumerate(messages):
        try:
            values = unpack_message(config, message)
            if message in seen:
                raise ValueError("is a repetition of an earlier one, whose noise counts once.")
            seen.add(message)
        except ValueError as error:
            if on_invalid == "raise":
                raise ValueError(f"message {i}: {error}") from None
            continue
        total = (total + values) & mask
        survivors.append(i)
    if config.min_survivors is not None and len(survivors) < config.min_survivors:
        raise BelowThresholdError(
            f"{len(survivors)} valid messages, fewer than min_survivors={config.min_survivors}: "
            "the round ends and reveals nothing."
        )
    return total, survivors


def unpack_message(config: RoundConfig, message: bytes) -> NDArray[np.uint64]:
    """Return the integers in one client's message; raise if it is not one of this round.

    Parameters
    ----------
    config : RoundConfig
        The round.
    message : bytes
        What :func:`client_encode` made.

    Returns
    -------
    ndarray of uint64
        One residue modulo M for each coordinate.

    Raises
    ------
    ValueError
        If the message has another length, was not made by this software, or is of another round.

    See Also
    --------
    aggregate : Adds messages up without a server that may not see them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import ClientPolicy, RoundSpec, client_encode
    >>> from sparse_secagg.rounds import unpack_message
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(5, 3)
    >>> policy = ClientPolicy(max_epsilon=4.0, max_delta=1e-5)
    >>> message = client_encode(config, np.zeros(5), policy=policy)
    >>> len(unpack_message(config, message)) == config.mechanism.padded_dim
    True
    """
    p = config.mechanism
    header = len(_MAGIC) + DIGEST_BYTES
    expected = header + packed_size(p.padded_dim, p.n_bits)
    if len(message) != expected:
        raise ValueError(f"has {len(message)} bytes, a message of this round has {expected}.")
    if message[: len(_MAGIC)] != _MAGIC:
        raise ValueError("is not a message of this software.")
    if message[len(_MAGIC) : header] != config.digest:
        raise ValueError("belongs to another round.")
    return unpack(message[header:], p.n_bits, p.padded_dim)


def server_decode(
    config: RoundConfig,
    total: ArrayLike,
    survivors: int | Sequence[int],
    decoder: Any = "linear",
) -> Estimate:
    """Return the estimate of the survivors' mean, and its realised ε, from the modular sum.

    Parameters
    ----------
    config : RoundConfig
        The round.
    total : array-like of shape (D,)
        Sum of the messages modulo M.
    survivors : int or sequence of int
        How many, or which, messages are in the sum.
    decoder : str or Solver
        Any solver; costs no privacy (with central noise, though, every call is a release).

    Returns
    -------
    Estimate
        The mean, its noise and the privacy that the survivors' noise gave.

    Raises
    ------
    BelowThresholdError
        Fewer than ``config.min_survivors`` survived. Where that is None any number is decoded,
        with a :class:`PrivacyWarning` if ε exceeds what the round claims.

    See Also
    --------
    aggregate : The sum, in a trusted process.
    ServerSession.total : The sum, between parties.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import ClientPolicy, RoundSpec
    >>> from sparse_secagg import aggregate, client_encode, server_decode
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(5, 3)
    >>> policies = [ClientPolicy(max_epsilon=4.0, max_delta=1e-5) for _ in range(3)]
    >>> messages = [client_encode(config, np.zeros(5), policy=policy) for policy in policies]
    >>> total, survivors = aggregate(config, messages)
    >>> server_decode(config, total, survivors).mean.shape
    (5,)
    """
    from sparse_secagg.round.decoders import make_decoder  # a client decodes nothing
    from sparse_secagg.round.parts import parts_of

    if not isinstance(survivors, int | np.integer):
        if len(set(survivors)) < len(survivors):
            raise ValueError("survivors names a message twice; its noise counts once.")
        survivors = len(survivors)
    k, work = int(survivors), parts_of(config)
    privacy = work.privacy(k)
    sketch, noise_std = work.decode(total, k), work.mechanism.noise_std(k)
    solver = make_decoder(decoder).fit(work.encoder.operator_, sketch, noise_std=noise_std)
    return Estimate(solver.coef_, privacy, k, noise_std)
