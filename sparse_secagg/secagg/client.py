"""The client: four messages, one secret vector, secrets that are used once.

    y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(s_ij) − Σ_{j<i} PRG(s_ij)   mod M

b_i is the self-mask seed; s_ij the secret agreed with neighbour j. Both b_i and the mask key behind
the s_ij are shared among the neighbours, who will give shares of one of them, never of both.

A client believes the server as little as it can. Whatever it is sent, it answers with its next
message or raises :class:`ServerFaultError`, :class:`BelowThresholdError` or :class:`ReuseError`;
what it refused to answer it does not answer later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg import shamir
from sparse_secagg.secagg.errors import BelowThresholdError, ReuseError, ServerFaultError
from sparse_secagg.secagg.keys import KeyPair, commitment, new_secret, seal, share_tag, unseal
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.messages import (
    KEYS_BYTES,
    MASK_KEY,
    NOTHING,
    SELF_MASK,
    AdvertiseKeys,
    ForwardedShares,
    MaskedInput,
    Message,
    PeerKeys,
    ShareKeys,
    UnmaskRequest,
    UnmaskShares,
)
from sparse_secagg.secagg.setup import STAGES, RoundSetup
from sparse_secagg.secagg.wire import MAX_BITS


@dataclass(eq=False)
class ClientSecrets:
    """The three secrets of a client in one round. They are drawn fresh and serve once."""

    mask_secret: bytes = field(default_factory=new_secret, repr=False)
    cipher_secret: bytes = field(default_factory=new_secret, repr=False)
    self_seed: bytes = field(default_factory=new_secret, repr=False)
    used: bool = False

    def use(self) -> None:
        """Mark the secrets as used; raise if they were."""
        if self.used:
            raise ReuseError("these secrets have served in a round; draw new ones for the next.")
        self.used = True

    def __getstate__(self) -> Any:
        raise TypeError("a client's secrets are not to be pickled or copied.")


class Client:
    """One client in one round.

    Parameters
    ----------
    index : int
        Its row in the cohort.
    message : ndarray of shape (m,)
        Its secret vector, integers in [0, M).
    setup : RoundSetup
        The round.
    secrets : ClientSecrets, optional
        For tests only; None draws them from the operating system.
    simulation : bool
        Whether the client protects nothing, and so takes part with seeded masks and at share
        thresholds that a lying server gets around.

    Raises
    ------
    ServerFaultError
        The setup is one that no client should accept.
    """

    def __init__(
        self,
        index: int,
        message: NDArray[Any],
        setup: RoundSetup,
        secrets: ClientSecrets | None = None,
        *,
        simulation: bool = False,
    ) -> None:
        _check_setup(setup, index, message, simulation)
        self.index = index
        self._message = message
        self._setup = setup
        self._secrets = ClientSecrets() if secrets is None else secrets
        self._secrets.use()
        self._mask_pair = setup.key_pair(self._secrets.mask_secret)
        self._cipher_pair = setup.key_pair(self._secrets.cipher_secret)
        self._members = setup.graph.members[index]
        self._own_rank = setup.graph.own_rank(index)
        self._stage = 0
        self._peers: dict[int, bytes] = {}
        self._cipher_keys: dict[int, tuple[bytes, bytes]] = {}
        self._shared: set[int] = set()
        self._shares: dict[int, bytes] = {}

    def respond(self, incoming: bytes | None = None) -> Message:
        """Return the next of the four messages, given the server's bytes (None for the first)."""
        if self._stage >= len(STAGES):
            raise ReuseError(f"client {self.index} has finished its round; make a new Client.")
        # Whoever refuses has left: only an answer leads to the next stage.
        stage, self._stage = self._stage, len(STAGES)
        answer = self._advertise() if stage == 0 else self._answer(stage, incoming or b"")
        self._stage = stage + 1
        return answer

    def __repr__(self) -> str:
        return f"Client({self.index}, stage={self._stage})"

    def __getstate__(self) -> Any:
        raise TypeError("a Client holds secrets and is not to be pickled or copied.")

    def _answer(self, stage: int, incoming: bytes) -> Message:
        try:
            return (self._share, self._mask, self._unmask)[stage - 1](incoming)
        except ValueError as error:
            raise ServerFaultError(f"client {self.index} was sent what {error}.") from None

    # -- the four messages ---------------------------------------------------------------------

    def _advertise(self) -> AdvertiseKeys:
        return AdvertiseKeys(
            self._setup.view,
            self.index,
            self._mask_pair.public,
            self._cipher_pair.public,
            commitment(self._secrets.self_seed),
        )

    def _share(self, incoming: bytes) -> ShareKeys:
        """Share both secrets among the members present, each pair of shares sealed for one."""
        setup = self._setup
        message = PeerKeys.from_bytes(incoming, setup, self.index)
        if message.present[self._own_rank]:
            raise ServerFaultError(f"client {self.index} was sent a key for itself.")
        keys = [row.tobytes() for row in message.keys]
        self._check_fresh(keys)
        ranks = np.flatnonzero(message.present).tolist()
        self._check_enough(len(ranks) + 1, "advertised keys")
        self._peers = dict(zip(ranks, keys))
        secrets = [self._secrets.self_seed, self._secrets.mask_secret]
        shares = shamir.split(secrets, setup.share_threshold, setup.graph.n_members)
        self._shares[self._own_rank] = shares[self._own_rank].tobytes()
        self._cipher_keys = {rank: self._agree_on_cipher_keys(rank) for rank in ranks}
        ciphertexts = [seal(self._cipher_keys[rank][0], shares[rank].tobytes()) for rank in ranks]
        tags = [
            share_tag(setup.digest, self.index, rank, kind, shares[rank, kind - 1].tobytes())
            for rank in sorted([*ranks, self._own_rank])
            for kind in (SELF_MASK, MASK_KEY)
        ]
        return ShareKeys(
            setup.view,
            self.index,
            message.present,
            np.frombuffer(b"".join(ciphertexts), dtype=np.uint8),
            np.frombuffer(b"".join(tags), dtype=np.uint8),
        )

    def _mask(self, incoming: bytes) -> MaskedInput:
        """Open the neighbours' shares; add the self mask and a mask for each that shared."""
        setup = self._setup
        message = ForwardedShares.from_bytes(incoming, setup, self.index)
        ranks = np.flatnonzero(message.present).tolist()
        if not self._peers.keys() >= set(ranks):
            raise ServerFaultError(f"client {self.index} was sent shares of clients without keys.")
        complaints = []
        for rank, ciphertext in zip(ranks, message.ciphertexts):
            opened = unseal(self._cipher_keys[rank][1], ciphertext.tobytes())
            if opened is None:
                complaints.append(int(self._members[rank]))
            else:
                self._shares[rank] = opened
        # Only a neighbour can have made a share that opens, so the server cannot add to these.
        self._check_enough(len(self._shares), "sent shares that open")
        self._shared = {*ranks, self._own_rank}
        self._peers = {rank: self._peers[rank] for rank in ranks}
        masks = self._masks()
        values = add_modulo(self._message.astype(np.uint64), masks.value(), setup.modulus)
        return MaskedInput(setup.view, self.index, values, setup.modulus, tuple(complaints))

    def _unmask(self, incoming: bytes) -> UnmaskShares:
        """Give one share of each neighbour, as asked. This is answered once."""
        setup = self._setup
        message = UnmaskRequest.from_bytes(incoming, setup, self.index)
        self._check_lists(message.wanted)
        held = np.zeros(setup.graph.n_members, dtype=bool)
        held[list(self._shares)] = True
        given = np.where(held, message.wanted, NOTHING).astype(np.uint8)
        size = shamir.SHARE_BYTES
        shares = b"".join(
            self._shares[rank][(given[rank] - 1) * size : given[rank] * size]
            for rank in np.flatnonzero(given).tolist()
        )
        return UnmaskShares(setup.view, self.index, given, np.frombuffer(shares, dtype=np.uint8))

    # -- what a client checks ------------------------------------------------------------------

    def _check_fresh(self, keys: list[bytes]) -> None:
        """Raise unless all keys differ, of both kinds, this client's own among them."""
        half = KEYS_BYTES // 2
        every = [part for key in keys for part in (key[:half], key[half:])]
        every += [self._mask_pair.public, self._cipher_pair.public]
        if len(set(every)) < len(every):
            raise ServerFaultError(
                f"client {self.index} was sent one key for two neighbours, or for two purposes."
            )

    def _check_enough(self, members: int, did: str) -> None:
        """Raise if too few of the neighbourhood are left to hide among."""
        if members < self._setup.least_members:
            raise BelowThresholdError(
                f"client {self.index} is told that {members} members of its neighbourhood {did}, "
                f"itself included; it does not go on with fewer than {self._setup.least_members}."
            )

    def _check_lists(self, wanted: NDArray[np.uint8]) -> None:
        """Raise unless the request splits exactly those that shared into survivors and dropped."""
        if wanted[self._own_rank] != SELF_MASK:
            raise ServerFaultError(
                f"client {self.index} was asked for its own mask key, or not named as a survivor."
            )
        asked = set(np.flatnonzero(wanted != NOTHING).tolist())
        if asked - self._shared:
            raise ServerFaultError(
                f"client {self.index} was asked about clients that did not share."
            )
        if self._shared - asked:
            raise ServerFaultError(
                f"client {self.index} was sent lists in which a client that shared is neither "
                "survivor nor dropped."
            )
        known = [rank for rank in self._shares if wanted[rank] == SELF_MASK]
        self._check_enough(len(known), "survived")

    # -- keys and masks ------------------------------------------------------------------------

    def _agree_on_cipher_keys(self, rank: int) -> tuple[bytes, bytes]:
        """Return the keys of the two ciphertexts between this client and a neighbour: to, from."""
        i, j = self.index, int(self._members[rank])
        pair = self._cipher_pair.agree(self._peers[rank][KEYS_BYTES // 2 :])
        keys = self._setup.derive(pair, "share", min(i, j), max(i, j), size=64)
        upward, downward = keys[:32], keys[32:]
        return (upward, downward) if i < j else (downward, upward)

    def _masks(self) -> MaskSum:
        """Return PRG(b_i) + Σ ± PRG(s_ij) over the neighbours that shared their keys."""
        setup = self._setup
        total = MaskSum(setup.length, setup.modulus)
        total.add(self_mask_key(setup, self.index, self._secrets.self_seed))
        for rank, keys in self._peers.items():
            peer = int(self._members[rank])
            key = pair_mask_key(setup, self._mask_pair, keys[: KEYS_BYTES // 2], self.index, peer)
            total.add(key, sign=mask_sign(self.index, peer))
        return total


def _check_setup(setup: RoundSetup, index: int, message: NDArray[Any], simulation: bool) -> None:
    """Raise :class:`ServerFaultError` for a setup that would not protect client ``index``."""
    graph, fault = setup.graph, None
    if not _fits(message, setup):
        # A shorter mask would be repeated over the vector, a smaller modulus would let it through.
        fault = (
            f"length={setup.length} and modulus={setup.modulus} are not those of its vector of "
            f"shape {np.shape(message)}"
        )
    elif not graph.is_neighbourhood(index):
        fault = f"the neighbourhood of client {index} is not one"
    elif not 2 <= setup.threshold <= graph.n_clients:
        fault = f"threshold={setup.threshold} is not between 2 and {graph.n_clients} clients"
    elif not 2 <= setup.share_threshold <= graph.n_members:
        fault = f"share_threshold={setup.share_threshold} is not between 2 and {graph.n_members}"
    elif not simulation and setup.exposes(index):
        fault = (
            f"share_threshold={setup.share_threshold} of {graph.n_members} members is so low that "
            "a server that lies about who dropped could unmask it"
        )
    elif not simulation and setup.key_pair.not_private:
        fault = f"masks={setup.masks!r} hide nothing"
    if fault:
        raise ServerFaultError(f"client {index} refuses the round: {fault}.")


def _fits(message: NDArray[Any], setup: RoundSetup) -> bool:
    """Return whether the vector has the round's length and residues of its modulus."""
    if message.shape != (setup.length,) or message.dtype.kind not in "ui":
        return False
    if not 2 <= setup.modulus <= 1 << MAX_BITS:
        return False
    return not message.size or (int(message.min()) >= 0 and int(message.max()) < setup.modulus)


def self_mask_key(setup: RoundSetup, client: int, seed: bytes) -> bytes:
    """Return the key of a client's self mask."""
    return setup.derive(seed, "self mask", client, client)


def pair_mask_key(setup: RoundSetup, own: KeyPair, public: bytes, i: int, j: int) -> bytes:
    """Return the key of the mask of the pair {i, j}, from one's key pair and the other's key."""
    return setup.derive(own.agree(public), "pair mask", min(i, j), max(i, j))


def mask_sign(i: int, j: int) -> int:
    """Return the sign of the mask of {i, j} in the vector of i: the two signs cancel."""
    return 1 if i < j else -1
