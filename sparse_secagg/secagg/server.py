"""The server: it sees bytes from clients, and from them nothing but the sum.

After the last stage it holds, for each survivor, the self-mask seed, and, for each client that
shared its keys but sent no vector, the mask key, both from shares. It recomputes the masks that did
not cancel and takes them off:

    Σ_{i∈U₃} x_i = Σ_{i∈U₃} y_i − Σ_{i∈U₃} PRG(b_i) − Σ_{i∈U₃, j∈U₂∖U₃} ± PRG(s_ij)   mod M.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg import shamir
from sparse_secagg.secagg.client import mask_sign, pair_mask_key, self_mask_key
from sparse_secagg.secagg.errors import BelowThresholdError, InvalidMessageError
from sparse_secagg.secagg.graph import complete_graph
from sparse_secagg.secagg.identities import SIGNATURE_BYTES, Roster, is_signed
from sparse_secagg.secagg.keys import (
    PUBLIC_BYTES,
    commitment,
    key_pair_type,
    new_secret,
    share_tag,
)
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.merkle import ABSENT, HashTree, leaf
from sparse_secagg.secagg.messages import (
    ADVERTISED_BYTES,
    CIPHERTEXT_BYTES,
    CONFIRMATION_BYTES,
    MASK_KEY,
    NOTHING,
    SELF_MASK,
    TAGS_BYTES,
    AdvertiseKeys,
    Confirmation,
    Confirmations,
    ForwardedShares,
    MaskedInput,
    Message,
    PeerKeys,
    ShareKeys,
    SurvivorList,
    UnmaskShares,
    max_message_bytes,
    sender_of,
    signed_part,
)
from sparse_secagg.secagg.setup import RoundDocument, RoundSetup, Session

_STATE_FORMAT = "sparse_secagg server 1"
_STATE = (
    "alive",
    "_came",
    "_shared",
    "_advertised",
    "_advertisers",
    "_ciphertexts",
    "_tags",
    "_confirmations",
    "_has_confirmation",
    "_sum",
    "_shares",
    "_has_share",
    "_wanted",
)


class ServerSession:
    """The server of one round, without input or output.

    Clients' bytes go into :meth:`receive`, which raises :class:`InvalidMessageError` for what is
    not allowed and then is as if the message had not come; :meth:`close_stage` ends a stage, when
    all have answered or time is up, and raises :class:`BelowThresholdError` where too few are left;
    :meth:`message_for` is what a client that is left is sent next.

    Parameters
    ----------
    document : RoundDocument, str or bytes
        The round as it is announced, or its JSON.
    session : Session, optional
        What was used in earlier rounds; a new one by default.
    roster : Roster, optional
        Who takes part; needed where clients sign.

    Attributes
    ----------
    alive : ndarray of bool, shape (n,)
        Clients that sent every message up to the last closed stage.
    complaints : list of (dealer, recipient)
        Shares that their recipient could not open, or revealed otherwise than the dealer announced
        them. One of the two is at fault; which, the server cannot know.

    See Also
    --------
    ClientSession : The other side.
    sparse_secagg.transport.serve_round : Carries the bytes over TLS.

    Examples
    --------
    >>> from sparse_secagg import Identity, Roster, RoundSpec, ServerSession, announce_round
    >>> roster = Roster("three")
    >>> for name in ("ann", "bob", "cas"):
    ...     roster = roster.add(name, Identity.new().public)
    >>> document = announce_round(RoundSpec(encoder="identity", n_bits=20), 10, roster)
    >>> ServerSession(document, roster=roster).stage
    'advertise'
    """

    def __init__(
        self,
        document: RoundDocument | str | bytes,
        session: Session | None = None,
        *,
        roster: Roster | None = None,
    ) -> None:
        if not isinstance(document, RoundDocument):
            document = RoundDocument.from_json(document)
        if roster is None and document.lying_server:
            raise ValueError("roster=None: clients sign in this round; pass the roster.")
        if roster is not None and (roster.digest, len(roster)) != (
            document.roster, document.n_clients
        ):  # fmt: skip
            raise ValueError("roster is not the one that the round's document names.")
        n, h = document.n_clients, document.n_members
        self.document = document
        self.alive = np.ones(n, dtype=bool)
        self.complaints: list[tuple[int, int]] = []
        self._roster = roster
        self._session = Session() if session is None else session
        # Agreeing with a throw-away key shows whether a public key is one.
        self._probe = key_pair_type(document.masks)(new_secret())
        self._stage = 0
        self._came = np.zeros(n, dtype=bool)
        self._shared = np.zeros(n, dtype=bool)
        self._advertised = np.zeros((n, PeerKeys.row_bytes(document)), dtype=np.uint8)
        self._ciphertexts = np.zeros((n, h, CIPHERTEXT_BYTES), dtype=np.uint8)
        self._tags = np.zeros((n, h, TAGS_BYTES), dtype=np.uint8)
        self._confirmations = np.zeros((0, h, CONFIRMATION_BYTES), dtype=np.uint8)
        self._has_confirmation = np.zeros((0, h), dtype=bool)
        self._sum = np.zeros(document.length, dtype=np.uint64)
        self._shares = np.zeros((0, h, shamir.SHARE_BYTES), dtype=np.uint8)
        self._has_share = np.zeros((n, h), dtype=bool)
        self._wanted = np.full(n, NOTHING, dtype=np.uint8)
        self._advertisers = np.zeros(n, dtype=bool)
        self._tree: HashTree | None = None
        # Where keys make the digest, messages before them know the document alone.
        self.setup = document.setup() if not document.lying_server else None

    @property
    def stage(self) -> str:
        """The stage whose messages are being received; "done" after the last."""
        stages = self.document.stages
        return stages[self._stage] if self._stage < len(stages) else "done"

    @property
    def waiting_for(self) -> NDArray[np.int64]:
        """The clients whose message of the current stage has not come."""
        return np.flatnonzero(self.alive & ~self._came)

    def receive(self, data: bytes, sender: int | None = None) -> None:
        """Take the current stage's message.

        Parameters
        ----------
        data : bytes
            The message.
        sender : int, optional
            The client whose channel it came through, where channels are known. Otherwise it is the
            client that the message names, and that signed it.
        """
        sender = self.sender_of(data) if sender is None else sender
        if self.stage == "done":
            raise InvalidMessageError(sender, "sent a message after the round")
        if not self.alive[sender]:
            raise InvalidMessageError(sender, f"is not part of stage {self.stage!r}")
        if self._came[sender]:
            raise InvalidMessageError(sender, f"sent two messages in stage {self.stage!r}")
        take: Callable[[int, bytes], None] = {
            "advertise": self._take_keys,
            "share": self._take_shares,
            "mask": self._take_masked,
            "confirm": self._take_confirmation,
            "unmask": self._take_unmask,
        }[self.stage]
        try:
            take(sender, self._verified(sender, bytes(data)))
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
        if left < self.document.threshold:
            raise BelowThresholdError(
                f"{left} clients are left after stage {self.stage!r}, fewer than the threshold "
                f"of {self.document.threshold}: the round ends and reveals nothing."
            )
        if self.stage == "advertise":
            self._fix_keys()
        elif self.stage == "share":
            self._shared = self.alive.copy()
        elif self.stage == "mask":
            self._begin_unmask()
        self._stage += 1

    def message_for(self, client: int) -> bytes:
        """Return what client is sent before the current stage's message."""
        setup = self._known_setup()
        graph, view = setup.graph, setup.view
        members, rank = graph.members[client], graph.rank[client]
        message: Message
        present = self.alive[members] & (members != client)
        if self.stage == "share":
            proof = b"" if self._tree is None else self._tree.proof(members.tolist())
            rows = self._advertised[members[present]]
            message = PeerKeys(view, client, present, rows, setup.root, proof)
        elif self.stage == "mask":
            ciphertexts = self._ciphertexts[members[present], rank[present]]
            message = ForwardedShares(view, client, present, ciphertexts)
        elif self.stage == "confirm" or (self.stage == "unmask" and not self._confirms):
            message = SurvivorList(view, client, self._wanted == SELF_MASK)
        elif self.stage == "unmask":
            present &= self._has_confirmation[members, rank]
            tags = self._confirmations[members[present], rank[present]]
            message = Confirmations(view, client, present, tags)
        else:
            raise RuntimeError(f"the server sends nothing before stage {self.stage!r}")
        return message.to_bytes()

    @property
    def survivors(self) -> NDArray[np.int64]:
        """The clients whose vectors are in the sum."""
        return np.flatnonzero(self._wanted == SELF_MASK)

    def total(self) -> NDArray[np.uint64]:
        """Return the sum of the survivors' vectors: masks recomputed from shares and taken off."""
        if self.stage != "done":
            raise RuntimeError(f"the round is in stage {self.stage!r}; there is no sum yet.")
        setup = self._known_setup()
        # Reconstruct everything before anything is unmasked: no partial result on failure.
        secrets = {int(i): self._reconstruct(int(i)) for i in np.flatnonzero(self._wanted)}
        masks = MaskSum(setup.length, setup.modulus)
        for i, secret in secrets.items():
            if self._wanted[i] == SELF_MASK:
                masks.add(self_mask_key(setup, i, secret))
            else:
                self._add_pair_masks(masks, i, secret)
        return add_modulo(self._sum, masks.value(), setup.modulus, sign=-1)

    # -- state between processes ---------------------------------------------------------------

    def save(self) -> bytes:
        """Return the session's state; :meth:`load` continues it. Keep the bytes private."""
        arrays = {name: getattr(self, name) for name in _STATE}
        root = b"" if self._tree is None else self._tree.root
        header = {
            "format": _STATE_FORMAT,
            "document": self.document.to_json(),
            "stage": self._stage,
            "complaints": self.complaints,
            "root": root.hex(),
        }
        file = io.BytesIO()
        np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        return file.getvalue()

    @classmethod
    def load(
        cls, state: bytes, session: Session | None = None, *, roster: Roster | None = None
    ) -> ServerSession:
        """Return the session that :meth:`save` wrote."""
        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                arrays = {name: file[name] for name in _STATE}
            if header["format"] != _STATE_FORMAT:
                raise ValueError("another format")
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"this is no saved state of a server: {error!r}.") from None
        server = cls(header["document"], session, roster=roster)
        for name, array in arrays.items():
            setattr(server, name, array)
        server._stage = header["stage"]
        server.complaints = [(dealer, recipient) for dealer, recipient in header["complaints"]]
        if header["root"]:
            server._plant_tree(server._advertisers)
        return server

    def __repr__(self) -> str:
        return f"ServerSession(stage={self.stage!r}, alive={int(self.alive.sum())})"

    # -- the stages ----------------------------------------------------------------------------

    @property
    def _confirms(self) -> bool:
        return self.document.lying_server

    def _known_setup(self) -> RoundSetup:
        if self.setup is None:
            raise RuntimeError("the round's keys are not all known yet.")
        return self.setup

    def sender_of(self, data: bytes) -> int:
        """Return the client that a message names; who signed it, :meth:`receive` checks."""
        try:
            sender = sender_of(data)
            if sender >= self.document.n_clients:
                raise ValueError(f"names client {sender} of {self.document.n_clients}")
        except ValueError as error:
            raise InvalidMessageError(-1, f"sent a message that {error}") from None
        return sender

    def _verified(self, sender: int, data: bytes) -> bytes:
        """Return the message without its signature, once that is verified."""
        if len(data) > max_message_bytes(self.document):
            raise ValueError(f"has {len(data)} bytes, more than any message of the round")
        if self._roster is None:
            return data
        message, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        digest = self.document.digest if self.setup is None else self.setup.digest
        key = self._roster.members[sender].key
        if not is_signed(key, signature, signed_part(digest, message)):
            raise ValueError("it did not sign, or not as a message of this round and view")
        self._signature = signature
        return message

    def _take_keys(self, sender: int, data: bytes) -> None:
        setup = RoundSetup(self.document, complete_graph(2)) if self.setup is None else self.setup
        message = AdvertiseKeys.from_bytes(data, setup, sender)
        for key in (message.mask_key, message.cipher_key):
            try:
                self._probe.agree(key)
            except ValueError:
                raise InvalidMessageError(sender, "advertised a key that is no key") from None
        keys = [message.mask_key, message.cipher_key, message.seed_commitment]
        if not self._session.claim_keys(keys):
            raise InvalidMessageError(sender, "advertised a key or seed that was used before")
        row = b"".join(keys) + (self._signature if self._confirms else b"")
        self._advertised[sender] = np.frombuffer(row, dtype=np.uint8)

    def _fix_keys(self) -> None:
        """Bind the keys of all that advertised; where they make the graph, make it."""
        if self._confirms:
            self._advertisers = self.alive.copy()
            self._plant_tree(self._advertisers)

    def _plant_tree(self, advertisers: NDArray[np.bool_]) -> None:
        rows = self._advertised[:, :ADVERTISED_BYTES]
        self._tree = HashTree(
            [
                leaf(i, row.tobytes()) if here else ABSENT
                for i, (row, here) in enumerate(zip(rows, advertisers))
            ]
        )
        self.setup = self.document.setup(self._tree.root)

    def _mask_key(self, client: int) -> bytes:
        return self._advertised[client, :PUBLIC_BYTES].tobytes()

    def _take_shares(self, sender: int, data: bytes) -> None:
        setup = self._known_setup()
        message = ShareKeys.from_bytes(data, setup, sender)
        members = setup.graph.members[sender]
        expected = self.alive[members] & (members != sender)
        if not np.array_equal(message.present, expected):
            raise ValueError("is not for exactly the neighbours it was told of")
        self._ciphertexts[sender, expected] = message.ciphertexts
        self._tags[sender, expected | (members == sender)] = message.tags

    def _take_masked(self, sender: int, data: bytes) -> None:
        setup = self._known_setup()
        message = MaskedInput.from_bytes(data, setup, sender)
        if not set(message.complaints) <= set(setup.graph.members[sender].tolist()) - {sender}:
            raise ValueError("complains about clients that are not its neighbours")
        add_modulo(self._sum, message.values, setup.modulus, out=self._sum)
        self.complaints += [(dealer, sender) for dealer in message.complaints]

    def _begin_unmask(self) -> None:
        setup = self._known_setup()
        if not setup.graph.is_connected(self.alive):
            raise BelowThresholdError(
                "the survivors' mask graph has fallen apart, so that sums of its parts would show; "
                "the round ends. Raise neighbors or the threshold."
            )
        around = setup.graph.n_near(self.alive)[self.alive]
        if self._confirms and around.min() < setup.share_threshold:
            raise BelowThresholdError(
                f"a survivor has {around.min()} of its neighbourhood left, fewer than "
                f"share_threshold={setup.share_threshold}: no client will unmask, and the round "
                "ends. Raise neighbors."
            )
        n, h = self._has_share.shape
        self._ciphertexts = np.zeros((0, h, CIPHERTEXT_BYTES), dtype=np.uint8)
        self._shares = np.zeros((n, h, shamir.SHARE_BYTES), dtype=np.uint8)
        self._wanted[self._shared] = MASK_KEY
        self._wanted[self.alive] = SELF_MASK
        if self._confirms:
            self._confirmations = np.zeros((n, h, CONFIRMATION_BYTES), dtype=np.uint8)
            self._has_confirmation = np.zeros((n, h), dtype=bool)

    def _take_confirmation(self, sender: int, data: bytes) -> None:
        """Keep the tags for those they are for: ``_confirmations[sender, rank]``."""
        message = Confirmation.from_bytes(data, self._known_setup(), sender)
        self._confirmations[sender, message.present] = message.tags
        self._has_confirmation[sender] = message.present

    def _take_unmask(self, sender: int, data: bytes) -> None:
        setup = self._known_setup()
        message = UnmaskShares.from_bytes(data, setup, sender)
        members, rank = setup.graph.members[sender], setup.graph.rank[sender]
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
        return bool(share_tag(self._known_setup().digest, dealer, place, kind, share) == expected)

    # -- recovery ------------------------------------------------------------------------------

    def _reconstruct(self, dealer: int) -> bytes:
        """Return the secret of a dealer that its neighbours gave shares of, verified."""
        ranks = np.flatnonzero(self._has_share[dealer])[: self.document.share_threshold]
        if len(ranks) < self.document.share_threshold:
            raise BelowThresholdError(
                f"{len(ranks)} shares of client {dealer}'s secret came, fewer than "
                f"share_threshold={self.document.share_threshold}: the round ends and reveals "
                "nothing."
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
        if self._wanted[dealer] == SELF_MASK:
            announced = self._advertised[dealer, 2 * PUBLIC_BYTES : ADVERTISED_BYTES]
            return commitment(secret) == announced.tobytes()
        return key_pair_type(self.document.masks)(secret).public == self._mask_key(dealer)

    def _add_pair_masks(self, masks: MaskSum, dropped: int, secret: bytes) -> None:
        """Add what the survivors added for a client that sent no vector."""
        setup = self._known_setup()
        own = setup.key_pair(secret)
        for peer in setup.graph.members[dropped].tolist():
            if self._wanted[peer] == SELF_MASK:
                key = pair_mask_key(setup, own, self._mask_key(peer), dropped, peer)
                masks.add(key, sign=mask_sign(peer, dropped))
