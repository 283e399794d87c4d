"""The server: it sees bytes from clients, and from them nothing but the sum.

After the last stage it holds, for each survivor, the self-mask seed, and, for each client that
shared its keys but sent no vector, the mask key, both from shares. It recomputes the masks that did
not cancel and takes them off:

    Σ_{i∈U₃} x_i = Σ_{i∈U₃} y_i − Σ_{i∈U₃} PRG(b_i) − Σ_{i∈U₃, j∈U₂∖U₃} ± PRG(s_ij)   mod M.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg import shamir
from sparse_secagg.secagg.client import mask_sign, pair_mask_key, self_mask_key
from sparse_secagg.secagg.errors import BelowThresholdError, InvalidMessageError
from sparse_secagg.secagg.keys import commitment, new_secret, share_tag
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.messages import (
    CIPHERTEXT_BYTES,
    MASK_KEY,
    NOTHING,
    SELF_MASK,
    TAGS_BYTES,
    AdvertiseKeys,
    ForwardedShares,
    MaskedInput,
    Message,
    PeerKeys,
    ShareKeys,
    UnmaskRequest,
    UnmaskShares,
)
from sparse_secagg.secagg.setup import STAGES, RoundSetup, Session


class Server:
    """The server of one round.

    Clients' bytes go into :meth:`receive`, which raises :class:`InvalidMessageError` for what is
    not allowed and then is as if the message had not come; :meth:`close_stage` ends a stage and
    raises :class:`BelowThresholdError` where too few are left; :meth:`message_for` is the answer
    to a client that is left.

    Attributes
    ----------
    alive : ndarray of bool, shape (n,)
        Clients that sent every message up to the last closed stage.
    complaints : list of (dealer, recipient)
        Shares that their recipient could not open, or revealed otherwise than the dealer announced
        them. One of the two is at fault; which, the server cannot know.
    """

    def __init__(self, setup: RoundSetup, session: Session) -> None:
        n, h = setup.graph.n_clients, setup.graph.n_members
        self.setup = setup
        self.alive = np.ones(n, dtype=bool)
        self.complaints: list[tuple[int, int]] = []
        self._session = session
        # Agreeing with a throw-away key shows whether a public key is one.
        self._probe = setup.key_pair(new_secret())
        self._stage = 0
        self._came = np.zeros(n, dtype=bool)
        self._shared = np.zeros(n, dtype=bool)
        self._keys: dict[int, AdvertiseKeys] = {}
        self._public = np.zeros((n, 64), dtype=np.uint8)
        self._ciphertexts = np.zeros((n, h, CIPHERTEXT_BYTES), dtype=np.uint8)
        self._tags = np.zeros((n, h, TAGS_BYTES), dtype=np.uint8)
        self._sum = np.zeros(setup.length, dtype=np.uint64)
        self._shares = np.zeros((0, h, shamir.SHARE_BYTES), dtype=np.uint8)
        self._has_share = np.zeros((n, h), dtype=bool)
        self._wanted = np.full(n, NOTHING, dtype=np.uint8)

    @property
    def stage(self) -> str:
        """The stage whose messages are being received; "done" after the last."""
        return STAGES[self._stage] if self._stage < len(STAGES) else "done"

    def receive(self, sender: int, data: bytes) -> None:
        """Take the current stage's message from the channel of client ``sender``."""
        if not self.alive[sender]:
            raise InvalidMessageError(sender, f"is not part of stage {self.stage!r}")
        if self._came[sender]:
            raise InvalidMessageError(sender, f"sent two messages in stage {self.stage!r}")
        take: Callable[[int, bytes], None] = (
            self._take_keys,
            self._take_shares,
            self._take_masked,
            self._take_unmask,
        )[self._stage]
        try:
            take(sender, data)
        except InvalidMessageError:
            raise
        except ValueError as error:
            raise InvalidMessageError(
                sender, f"sent a message in stage {self.stage!r} that {error}"
            ) from None
        self._came[sender] = True

    def close_stage(self) -> None:
        """End the stage: whoever has not sent its message is out."""
        self.alive &= self._came
        self._came = np.zeros_like(self._came)
        left = int(self.alive.sum())
        if left < self.setup.threshold:
            raise BelowThresholdError(
                f"{left} clients are left after stage {self.stage!r}, fewer than the threshold "
                f"of {self.setup.threshold}: the round ends and reveals nothing."
            )
        if self.stage == "share":
            self._shared = self.alive.copy()
        elif self.stage == "mask":
            self._begin_unmask()
        self._stage += 1

    def message_for(self, client: int) -> Message:
        """Return what client is sent before the current stage's message."""
        graph, view = self.setup.graph, self.setup.view
        members, rank = graph.members[client], graph.rank[client]
        if self.stage == "unmask":
            return UnmaskRequest(view, client, self._wanted[members])
        present = self.alive[members] & (members != client)
        if self.stage == "share":
            return PeerKeys(view, client, present, self._public[members[present]])
        if self.stage == "mask":
            ciphertexts = self._ciphertexts[members[present], rank[present]]
            return ForwardedShares(view, client, present, ciphertexts)
        raise RuntimeError(f"the server sends nothing before stage {self.stage!r}")

    @property
    def survivors(self) -> NDArray[np.int64]:
        """The clients whose vectors are in the sum."""
        return np.flatnonzero(self._wanted == SELF_MASK)

    def total(self) -> NDArray[np.uint64]:
        """Return the sum of the survivors' vectors: masks recomputed from shares and taken off."""
        if self.stage != "done":
            raise RuntimeError(f"the round is in stage {self.stage!r}; there is no sum yet.")
        setup = self.setup
        # Reconstruct everything before anything is unmasked: no partial result on failure.
        secrets = {int(i): self._reconstruct(int(i)) for i in np.flatnonzero(self._wanted)}
        masks = MaskSum(setup.length, setup.modulus)
        for i, secret in secrets.items():
            if self._wanted[i] == SELF_MASK:
                masks.add(self_mask_key(setup, i, secret))
            else:
                self._add_pair_masks(masks, i, secret)
        return add_modulo(self._sum, masks.value(), setup.modulus, sign=-1)

    def __repr__(self) -> str:
        return f"Server(stage={self.stage!r}, alive={int(self.alive.sum())})"

    # -- the four stages -----------------------------------------------------------------------

    def _take_keys(self, sender: int, data: bytes) -> None:
        message = AdvertiseKeys.from_bytes(data, self.setup, sender)
        for key in (message.mask_key, message.cipher_key):
            try:
                self._probe.agree(key)
            except ValueError:
                raise InvalidMessageError(sender, "advertised a key that is no key") from None
        keys = [message.mask_key, message.cipher_key, message.seed_commitment]
        if not self._session.claim_keys(keys):
            raise InvalidMessageError(sender, "advertised a key or seed that was used before")
        self._keys[sender] = message
        self._public[sender] = np.frombuffer(message.mask_key + message.cipher_key, dtype=np.uint8)

    def _take_shares(self, sender: int, data: bytes) -> None:
        message = ShareKeys.from_bytes(data, self.setup, sender)
        members = self.setup.graph.members[sender]
        expected = self.alive[members] & (members != sender)
        if not np.array_equal(message.present, expected):
            raise ValueError("is not for exactly the neighbours it was told of")
        self._ciphertexts[sender, expected] = message.ciphertexts
        self._tags[sender, expected | (members == sender)] = message.tags

    def _take_masked(self, sender: int, data: bytes) -> None:
        message = MaskedInput.from_bytes(data, self.setup, sender)
        if not set(message.complaints) <= set(self.setup.graph.members[sender].tolist()) - {sender}:
            raise ValueError("complains about clients that are not its neighbours")
        self._sum = add_modulo(self._sum, message.values, self.setup.modulus)
        self.complaints += [(dealer, sender) for dealer in message.complaints]

    def _begin_unmask(self) -> None:
        setup = self.setup
        if not setup.graph.is_connected(self.alive):
            raise BelowThresholdError(
                "the survivors' mask graph has fallen apart, so that sums of its parts would show; "
                "the round ends. Raise neighbors or the threshold."
            )
        n, h = self._has_share.shape
        self._ciphertexts = np.zeros((0, h, CIPHERTEXT_BYTES), dtype=np.uint8)
        self._shares = np.zeros((n, h, shamir.SHARE_BYTES), dtype=np.uint8)
        self._wanted[self._shared] = MASK_KEY
        self._wanted[self.alive] = SELF_MASK

    def _take_unmask(self, sender: int, data: bytes) -> None:
        message = UnmaskShares.from_bytes(data, self.setup, sender)
        members, rank = self.setup.graph.members[sender], self.setup.graph.rank[sender]
        given = message.given != NOTHING
        if (message.given[given] != self._wanted[members[given]]).any():
            raise ValueError("holds shares it was not asked for")
        for dealer, place, share in zip(
            members[given].tolist(), rank[given].tolist(), message.shares
        ):
            if self._is_share(dealer, place, share.tobytes()):
                self._shares[dealer, place] = share
                self._has_share[dealer, place] = True
            else:
                self.complaints.append((dealer, sender))

    def _is_share(self, dealer: int, place: int, share: bytes) -> bool:
        """Return whether this is the share that the dealer announced for the place."""
        kind = int(self._wanted[dealer])
        tags = self._tags[dealer, place].tobytes()
        expected = tags[(kind - 1) * TAGS_BYTES // 2 : kind * TAGS_BYTES // 2]
        return share_tag(self.setup.digest, dealer, place, kind, share) == expected

    # -- recovery ------------------------------------------------------------------------------

    def _reconstruct(self, dealer: int) -> bytes:
        """Return the secret of a dealer that its neighbours gave shares of, verified."""
        ranks = np.flatnonzero(self._has_share[dealer])[: self.setup.share_threshold]
        if len(ranks) < self.setup.share_threshold:
            raise BelowThresholdError(
                f"{len(ranks)} shares of client {dealer}'s secret came, fewer than "
                f"share_threshold={self.setup.share_threshold}: the round ends and reveals nothing."
            )
        try:
            secret = shamir.combine(ranks + 1, self._shares[dealer, ranks])
        except ValueError:
            secret = b""
        if not secret or not self._is_secret_of(dealer, secret):
            raise InvalidMessageError(
                dealer,
                "dealt shares that do not give the secret it announced",
                "Its masks cannot be taken off any more: run the round again without it.",
            )
        return secret

    def _is_secret_of(self, dealer: int, secret: bytes) -> bool:
        announced = self._keys[dealer]
        if self._wanted[dealer] == SELF_MASK:
            return commitment(secret) == announced.seed_commitment
        return self.setup.key_pair(secret).public == announced.mask_key

    def _add_pair_masks(self, masks: MaskSum, dropped: int, secret: bytes) -> None:
        """Add what the survivors added for a client that sent no vector."""
        own = self.setup.key_pair(secret)
        for peer in self.setup.graph.members[dropped].tolist():
            if self._wanted[peer] == SELF_MASK:
                public = self._keys[peer].mask_key
                key = pair_mask_key(self.setup, own, public, dropped, peer)
                masks.add(key, sign=mask_sign(peer, dropped))
