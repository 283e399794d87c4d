"""The client of a round, without input or output: bytes in, bytes out, secrets that serve once.

    y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(s_ij) − Σ_{j<i} PRG(s_ij)   mod M

b_i is the self-mask seed; s_ij the secret agreed with neighbour j. Both b_i and the mask key behind
the s_ij are shared among the neighbours, who will give shares of one of them, never of both.

A client believes the server as little as it can: :mod:`~sparse_secagg.secagg.session` lists what it
checks. Whatever it is sent, it answers with its next message or raises
:class:`RefusedRoundError`; what it refused to answer it does not answer later.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import os
import threading
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg import merkle, shamir
from sparse_secagg.secagg.errors import ReuseError, ServerFaultError, TooFewClientsError
from sparse_secagg.secagg.identities import Identity, Roster, agreement_keys, is_signed
from sparse_secagg.secagg.keys import (
    PUBLIC_BYTES,
    AgreedOnce,
    Jointly,
    KeyPair,
    commitment,
    key_pair_type,
    new_secret,
    seal,
    share_tag,
    unseal,
)
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.messages import (
    ADVERTISED_BYTES,
    CONFIRMATION_BYTES,
    MASK_KEY,
    SELF_MASK,
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
    signed_part,
)
from sparse_secagg.secagg.quorums import has_quorums
from sparse_secagg.secagg.setup import RoundDocument, RoundSetup

_STATE_FORMAT = "sparse_secagg client 1"
#: Held while a session's stage is looked at and ended: two threads never answer in one stage.
_TAKING_STAGE = threading.Lock()


class Gatekeeper(Protocol):
    """Who decides for a client: its policy, its budget and its memory of rounds.

    :class:`~sparse_secagg.agent.ClientAgent` is one.
    """

    def admit(self, document: RoundDocument, roster: Roster | None) -> None:
        """Raise :class:`RefusedRoundError` unless the client may take part. Keys come after it."""

    def release(self, document: RoundDocument, x: Any) -> NDArray[np.uint64]:
        """Return the residues to mask; raise, before anything leaves, if they must not leave."""
        ...

    def claim(self, token: bytes) -> None:
        """Raise :class:`RefusedRoundError` if a saved state with this token has continued."""


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


class ClientSession:
    """One client in one round.

    Parameters
    ----------
    document : RoundDocument, str or bytes
        The round as the server announced it, or its JSON.
    index : int, optional
        The client's place in the cohort, where there is no roster.
    identity : Identity, optional
        The client's signing key; needed where the server may lie.
    roster : Roster, optional
        The roster that the client knows; needed where the server may lie.
    agent : ClientAgent or None
        Who agrees to rounds, encodes and charges. None is for simulations and tests: the vector is
        then one of residues, nobody minds the budget, and a saved state may be continued twice.
    secrets : ClientSecrets, optional
        For tests only; None draws them from the operating system.
    simulation : bool
        Whether the client protects nothing, and so takes part with seeded masks and at share
        thresholds that a lying server gets around.
    agreed : AgreedOnce, optional
        For simulations that play all clients: the keys that other clients have agreed on with it.

    Raises
    ------
    RefusedRoundError
        The round is one that no client should take part in, or that the agent does not agree to.

    See Also
    --------
    ServerSession : The other side.
    announce_round : Makes the document.

    Notes
    -----
    :meth:`start` makes the first message, :meth:`receive` answers each of the server's. It returns
    None when the vector's turn has come (``wants_vector``): :meth:`mask` then makes the answer.

    Examples
    --------
    >>> from sparse_secagg import ClientSession, Identity, Roster, RoundSpec, announce_round
    >>> people = [Identity.new() for _ in range(3)]
    >>> roster = Roster("three")
    >>> for i, person in enumerate(people):
    ...     roster = roster.add(str(i), person.public)
    >>> spec = RoundSpec(epsilon=2.0, encoder="identity", n_bits=20)
    >>> document = announce_round(spec, 10, roster)
    >>> client = ClientSession(document, identity=people[0], roster=roster, simulation=True)
    >>> len(client.start()) > 64  # signed keys
    True
    """

    def __init__(
        self,
        document: RoundDocument | str | bytes,
        index: int | None = None,
        *,
        identity: Identity | None = None,
        roster: Roster | None = None,
        agent: Gatekeeper | None = None,
        secrets: ClientSecrets | None = None,
        simulation: bool = False,
        agreed: AgreedOnce | None = None,
    ) -> None:
        if not isinstance(document, RoundDocument):
            document = RoundDocument.from_json(document)
        self.document = document
        self._identity, self._roster, self._agent = identity, roster, agent
        self._agreed = agreed
        self.index = self._place(index)
        self._simulation = simulation
        self._stage = "done"
        self._check_parameters()
        if agent is not None:
            agent.admit(document, roster)
        self._secrets = ClientSecrets() if secrets is None else secrets
        self._secrets.use()
        self._make_pairs()
        self._mask_keys: dict[int, bytes] = {}
        self._pair_keys: dict[int, bytes] = {}
        self._signed: dict[int, bytes] = {}
        self._shared: set[int] = set()
        self._shares: dict[int, bytes] = {}
        self._complaints: tuple[int, ...] = ()
        self._survivors: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._stage = "advertise"
        if not document.lying_server:
            self._enter(document.setup())
            self._check_exposure()

    def _place(self, index: int | None) -> int:
        """Return the client's place; with a roster that is where its key stands."""
        if self._roster is None:
            if self.document.lying_server or index is None:
                raise RefusedRoundError(
                    "security='malicious' takes an identity and a roster to know others by; "
                    "simulations pass security='semi_honest' and an index."
                )
            if not 0 <= index < self.document.n_clients:
                raise RefusedRoundError(f"index={index} is not in the round's cohort.")
            return index
        place = None if self._identity is None else self._roster.index(self._identity.public)
        if place is None or index not in (None, place):
            raise RefusedRoundError("this client's identity is not on the roster, or not there.")
        return place

    def _make_pairs(self) -> None:
        make = key_pair_type(self.document.masks)
        self._mask_pair = make(self._secrets.mask_secret)
        self._cipher_pair = make(self._secrets.cipher_secret)

    # -- what its owner calls ------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """The message that the client makes next: a stage's name, or "done"."""
        return "mask" if self._stage == "vector" else self._stage

    @property
    def wants_vector(self) -> bool:
        """Whether it is time to call :meth:`mask`."""
        return self._stage == "vector"

    @property
    def finished(self) -> bool:
        """Whether the client has answered all there is, or has refused."""
        return self._stage == "done"

    def start(self) -> bytes:
        """Return the first message, which advertises the client's keys."""
        self._leave("advertise")
        message = self._advertisement()
        self._stage = "share"
        return self._sign(message, self.document.digest)

    def receive(self, data: bytes) -> bytes | None:
        """Return the answer to a message of the server; None if the vector is wanted first.

        Raises
        ------
        RefusedRoundError
            For whatever an honest server does not send. The client has left the round then.
        """
        # Whoever refuses has left: only an answer leads to the next stage.
        stage = self._take_stage()
        if stage in ("advertise", "vector", "done"):
            raise ReuseError(
                f"client {self.index} has finished its round, or awaits no message of the server."
            )
        answer = {
            "share": self._share,
            "mask": self._take_shares,
            "confirm": self._take_list,
            "unmask": self._unmask,
        }[stage]
        try:
            message = answer(bytes(data))
        except RefusedRoundError:
            raise
        except ValueError as error:
            raise ServerFaultError(f"client {self.index} was sent what {error}.") from None
        return None if message is None else self._sign(message, self._setup.digest)

    def mask(self, x: ArrayLike) -> bytes:
        """Return the masked vector; with an agent, after it has encoded and charged it.

        Parameters
        ----------
        x : array-like
            With an agent, the client's vector of floats. Without, its message: residues (m,).
        """
        self._leave("vector")
        setup = self._setup
        vector = np.asarray(x) if self._agent is None else self._agent.release(self.document, x)
        self._check_vector(vector)
        values = self._masks().value()
        add_modulo(vector.astype(np.uint64), values, setup.modulus, out=values)
        message = MaskedInput(setup.view, self.index, values, setup.modulus, self._complaints)
        # Nothing that makes masks is needed any more.
        self._secrets, self._mask_keys = ClientSecrets(used=True), {}
        for name in ("_mask_pair", "_cipher_pair"):
            vars(self).pop(name, None)
        self._stage = "confirm"
        return self._sign(message, setup.digest)

    # -- state between processes ---------------------------------------------------------------

    def save(self) -> bytes:
        """Return the session's state and end it here: :meth:`load` continues it, once.

        The bytes hold secrets. Keep them encrypted, or where only the client can read them.
        """
        stage = self._take_stage()
        secrets = self._secrets
        state = {
            "format": _STATE_FORMAT,
            "token": os.urandom(16).hex(),
            "document": _document_text(self.document),
            "index": self.index,
            "stage": stage,
            "simulation": self._simulation,
            "secrets": [
                s.hex() for s in (secrets.mask_secret, secrets.cipher_secret, secrets.self_seed)
            ],
            "root": self._setup.root.hex() if hasattr(self, "_setup") else None,
            "mask_keys": _to_text(self._mask_keys),
            "pair_keys": _to_text(self._pair_keys),
            "signed": _to_text(self._signed),
            "shared": sorted(self._shared),
            "shares": _to_text(self._shares),
            "complaints": self._complaints,
            "survivors": np.flatnonzero(self._survivors).tolist(),
        }
        return json.dumps(state).encode()

    @classmethod
    def load(
        cls,
        state: bytes,
        *,
        identity: Identity | None = None,
        roster: Roster | None = None,
        agent: Gatekeeper | None = None,
        agreed: AgreedOnce | None = None,
    ) -> ClientSession:
        """Return the session that :meth:`save` wrote.

        Raises
        ------
        RefusedRoundError
            The agent's log says that this state was continued before.
        ValueError
            The bytes are not a saved state.
        """
        try:
            session = cls._load(json.loads(state), identity, roster, agent)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no saved state of a client: {error!r}.") from None
        session._agreed = agreed
        return session

    @classmethod
    def _load(
        cls,
        state: dict[str, Any],
        identity: Identity | None,
        roster: Roster | None,
        agent: Gatekeeper | None,
    ) -> ClientSession:
        if state["format"] != _STATE_FORMAT:
            raise ValueError("this is no saved state of a client.")
        session = cls.__new__(cls)
        session.document = _document_of(state["document"])
        session._identity, session._roster, session._agent = identity, roster, agent
        session.index = session._place(state["index"])
        session._simulation = state["simulation"]
        session._stage = "done"
        session._check_parameters()
        mask_secret, cipher_secret, self_seed = map(bytes.fromhex, state["secrets"])
        session._secrets = ClientSecrets(mask_secret, cipher_secret, self_seed, used=True)
        if state["stage"] in ("advertise", "share"):
            session._make_pairs()
        if state["root"] is not None:
            session._enter(session.document.setup(bytes.fromhex(state["root"])))
        session._mask_keys, session._pair_keys, session._signed, session._shares = (
            _from_text(state[name]) for name in ("mask_keys", "pair_keys", "signed", "shares")
        )
        session._shared, session._complaints = set(state["shared"]), tuple(state["complaints"])
        session._survivors = np.zeros(session.document.n_clients, dtype=bool)
        session._survivors[state["survivors"]] = True
        if agent is not None:
            agent.claim(bytes.fromhex(state["token"]))
        session._stage = state["stage"]
        return session

    def __repr__(self) -> str:
        return f"ClientSession({self.index}, stage={self._stage!r})"

    def __getstate__(self) -> Any:
        raise TypeError("a ClientSession holds secrets and is not to be pickled or copied.")

    # -- the messages --------------------------------------------------------------------------

    def _take_stage(self) -> str:
        """Return the stage and end it, for one of the threads that may ask at once."""
        with _TAKING_STAGE:
            stage, self._stage = self._stage, "done"
        return stage

    def _leave(self, stage: str) -> None:
        """Go from ``stage``, and only from it, to being nowhere until the answer is made."""
        found = self._take_stage()
        if found != stage:
            raise ReuseError(
                f"client {self.index} is in stage {found!r}, not in {stage!r}: each message is "
                "made once, in its turn."
            )

    def _enter(self, setup: RoundSetup) -> None:
        """Take the round as it is now that its keys are known."""
        self._setup = setup
        self._members = setup.graph.neighbourhood(self.index)
        self._own_rank = int(np.searchsorted(self._members, self.index))

    def _sign(self, message: Message, digest: bytes) -> bytes:
        data = message.to_bytes()
        if not self.document.lying_server:
            return data
        assert self._identity is not None
        return data + self._identity.sign(signed_part(digest, data))

    def _advertisement(self) -> AdvertiseKeys:
        advertised = (
            self._mask_pair.public + self._cipher_pair.public + commitment(self._secrets.self_seed)
        )
        return AdvertiseKeys.of(self.document, self.index, advertised)

    def _share(self, data: bytes) -> ShareKeys:
        """Share both secrets among the members present, each pair of shares sealed for one."""
        if self.document.lying_server:
            self._enter(self.document.setup(PeerKeys.root_of(data, self.document)))
        setup = self._setup
        message = PeerKeys.from_bytes(data, setup, self.index)
        if message.present[self._own_rank]:
            raise ServerFaultError(f"client {self.index} was sent a key for itself.")
        rows = [row.tobytes() for row in message.advertised]
        ranks = np.flatnonzero(message.present).tolist()
        advertised = {rank: row[:ADVERTISED_BYTES] for rank, row in zip(ranks, rows)}
        if self.document.lying_server:
            self._check_root(message, advertised)
            self._signed = dict(zip(ranks, rows))
        self._check_fresh(list(advertised.values()))
        self._check_enough(len(ranks) + 1, "advertised keys")
        # All keys are agreed on now: one of low order is refused before anything is sent.
        self._pair_keys = self._agree(advertised)
        self._mask_keys = {rank: self._agree_mask(rank, row) for rank, row in advertised.items()}
        secrets = [self._secrets.self_seed, self._secrets.mask_secret]
        shares = shamir.split(secrets, setup.share_threshold, setup.graph.n_members)
        self._shares[self._own_rank] = shares[self._own_rank].tobytes()
        ciphertexts = [seal(self._to(rank)[:32], shares[rank].tobytes()) for rank in ranks]
        tags = [
            share_tag(setup.digest, self.index, rank, kind, shares[rank, kind - 1].tobytes())
            for rank in sorted([*ranks, self._own_rank])
            for kind in (SELF_MASK, MASK_KEY)
        ]
        self._stage = "mask"
        return ShareKeys(
            setup.view,
            self.index,
            message.present,
            np.frombuffer(b"".join(ciphertexts), dtype=np.uint8),
            np.frombuffer(b"".join(tags), dtype=np.uint8),
        )

    def _take_shares(self, data: bytes) -> None:
        """Open the neighbours' shares; the vector is wanted next."""
        message = ForwardedShares.from_bytes(data, self._setup, self.index)
        ranks = np.flatnonzero(message.present).tolist()
        self._check_known(ranks)
        closed = []
        for rank, ciphertext in zip(ranks, message.ciphertexts):
            opened = unseal(self._from(rank)[:32], ciphertext.tobytes())
            if opened is None:
                closed.append(rank)
            else:
                self._shares[rank] = opened
        # Only a neighbour can have made a share that opens, so the server cannot add to these.
        self._check_enough(len(self._shares), "sent shares that open")
        if self.document.lying_server:
            self._check_signatures(closed)
        self._shared = {*ranks, self._own_rank}
        self._complaints = tuple(int(self._members[rank]) for rank in closed)
        self._signed = {}
        self._mask_keys = {rank: self._mask_keys[rank] for rank in ranks}
        self._stage = "vector"

    def _take_list(self, data: bytes) -> Message:
        """Take the list of survivors: confirm it to the neighbours, or act on it at once."""
        message = SurvivorList.from_bytes(data, self._setup, self.index)
        self._check_list(message.survivors)
        self._survivors = message.survivors
        if not self.document.lying_server:
            return self._open_shares()
        self._check_everybody(message.survivors)
        near, digest = self._near(), self._list_digest()
        tags = [
            hmac.digest(self._to(rank)[32:], digest, "sha256")[:CONFIRMATION_BYTES] for rank in near
        ]
        present = np.zeros(len(self._members), dtype=bool)
        present[near] = True
        self._stage = "unmask"
        return Confirmation(
            self._setup.view, self.index, present, np.frombuffer(b"".join(tags), dtype=np.uint8)
        )

    def _unmask(self, data: bytes) -> UnmaskShares:
        """Give shares once enough neighbours have confirmed the same list."""
        message = Confirmations.from_bytes(data, self._setup, self.index)
        self._check_confirmed(message)
        return self._open_shares()

    def _open_shares(self) -> UnmaskShares:
        """Give one share of each neighbour that shared, as the list says. This is done once."""
        given = np.zeros(len(self._members), dtype=np.uint8)
        held = sorted(self._shares)
        on_list = self._survivors[self._members[held]]
        given[held] = np.where(on_list, SELF_MASK, MASK_KEY)
        size = shamir.SHARE_BYTES
        shares = b"".join(
            self._shares[rank][(given[rank] - 1) * size : given[rank] * size] for rank in held
        )
        return UnmaskShares(
            self._setup.view, self.index, given, np.frombuffer(shares, dtype=np.uint8)
        )

    # -- what a client checks: session.py says what each prevents --------------------------------

    def _check_parameters(self) -> None:
        """Refuse sizes and thresholds at which nobody could be protected."""
        d, roster = self.document, self._roster
        fault = None
        if roster is not None and (d.roster != roster.digest or d.n_clients != len(roster)):
            fault = "its roster is not the one this client knows"
        elif not self._simulation and key_pair_type(d.masks).not_private:
            fault = f"masks={d.masks!r} hide nothing"
        elif (
            d.lying_server
            and not self._simulation
            and not has_quorums(d.n_members, d.share_threshold, d.n_clients)
        ):
            fault = (
                f"share_threshold={d.share_threshold} of {d.n_members} members is so low that two "
                "lists could be confirmed"
            )
        if fault:
            raise ServerFaultError(f"client {self.index} refuses the round: {fault}.")

    def _check_exposure(self) -> None:
        """Without confirmed lists, refuse share thresholds that lies get around."""
        if not self._simulation and self._setup.exposes:
            raise ServerFaultError(
                f"client {self.index} refuses the round: share_threshold="
                f"{self.document.share_threshold} of {self.document.n_members} members is so low "
                "that a server that lies about who dropped could unmask it."
            )

    def _check_root(self, message: PeerKeys, advertised: dict[int, bytes]) -> None:
        """Refuse keys, and absences, of the neighbourhood that the root does not bind."""
        leaves = {int(j): merkle.ABSENT for j in self._members}
        for rank, row in advertised.items():
            j = int(self._members[rank])
            leaves[j] = merkle.leaf(j, row)
        own = self._advertisement()
        leaves[self.index] = merkle.leaf(
            self.index, own.mask_key + own.cipher_key + own.seed_commitment
        )
        if not merkle.is_proved(message.root, self.document.n_clients, leaves, message.proof):
            raise ServerFaultError(
                f"client {self.index} was sent keys that are not those that everybody is sent."
            )

    def _check_signatures(self, ranks: list[int]) -> None:
        """Refuse keys that nothing else shows to be their owners', unless these signed them."""
        assert self._roster is not None
        for rank in ranks:
            j, row = int(self._members[rank]), self._signed[rank]
            advertised, signature = row[:ADVERTISED_BYTES], row[ADVERTISED_BYTES:]
            message = AdvertiseKeys.signed_by(self.document, j, advertised)
            if not is_signed(self._roster.members[j].key, signature, message):
                raise ServerFaultError(
                    f"client {self.index} was sent keys that client {j} of the roster did not sign."
                )

    def _check_fresh(self, advertised: list[bytes]) -> None:
        """Raise unless all keys differ, of both kinds, this client's own among them."""
        cuts = (slice(PUBLIC_BYTES), slice(PUBLIC_BYTES, 2 * PUBLIC_BYTES))
        every = [row[cut] for row in advertised for cut in cuts]
        every += [self._mask_pair.public, self._cipher_pair.public]
        if len(set(every)) < len(every):
            raise ServerFaultError(
                f"client {self.index} was sent one key for two neighbours, or for two purposes."
            )

    def _check_known(self, ranks: list[int]) -> None:
        """Raise unless all who shared had advertised keys."""
        if not self._mask_keys.keys() >= set(ranks):
            raise ServerFaultError(f"client {self.index} was sent shares of clients without keys.")

    def _check_enough(self, members: int, did: str) -> None:
        """Raise if too few of the neighbourhood are left to hide among."""
        if members < self._setup.least_members:
            raise TooFewClientsError(
                f"client {self.index} is told that {members} members of its neighbourhood {did}, "
                f"itself included; it does not go on with fewer than {self._setup.least_members}."
            )

    def _check_list(self, survivors: NDArray[np.bool_]) -> None:
        """Raise unless the list names this client, only clients that shared, and enough of them."""
        if not survivors[self.index]:
            raise ServerFaultError(
                f"client {self.index} sent its vector and is not named as a survivor."
            )
        near = {int(rank) for rank in np.flatnonzero(survivors[self._members])}
        if near - self._shared:
            raise ServerFaultError(
                f"client {self.index} was sent a list with clients that did not share."
            )
        if np.count_nonzero(survivors) < self.document.threshold:
            raise TooFewClientsError(
                f"client {self.index} is told that {np.count_nonzero(survivors)} clients survived, "
                f"fewer than the threshold of {self.document.threshold}."
            )
        self._check_enough(len(near & self._shares.keys()), "survived")

    def _check_everybody(self, survivors: NDArray[np.bool_]) -> None:
        """Raise unless every survivor on the list has enough survivors around it."""
        around = self._setup.graph.n_near(survivors)[survivors]
        if around.min() < self.document.share_threshold:
            raise TooFewClientsError(
                f"client {self.index} was sent a list on which a survivor has {around.min()} of "
                f"its neighbourhood left; it takes {self.document.share_threshold}."
            )

    def _check_confirmed(self, message: Confirmations) -> None:
        """Raise unless enough of the neighbourhood, itself included, hold the same list."""
        digest, confirmed = self._list_digest(), 1
        near = set(self._near())
        ranks = np.flatnonzero(message.present).tolist()
        for rank, tag in zip(ranks, message.tags):
            if rank in near:
                expected = hmac.digest(self._from(rank)[32:], digest, "sha256")
                confirmed += hmac.compare_digest(expected[:CONFIRMATION_BYTES], tag.tobytes())
        self._check_enough(confirmed, "confirmed the list of survivors")

    def _check_vector(self, vector: NDArray[Any]) -> None:
        """Raise unless the vector has the round's length and residues of its modulus."""
        # A shorter mask would be repeated over the vector, a smaller modulus would let it through.
        fits = vector.shape == (self.document.length,) and vector.dtype.kind in "ui"
        if fits and vector.size:
            fits = int(vector.min()) >= 0 and int(vector.max()) < self.document.modulus
        if not fits:
            raise RefusedRoundError(
                f"client {self.index} refuses the round: length={self.document.length} and modulus="
                f"{self.document.modulus} are not those of its vector of shape {vector.shape}."
            )

    # -- keys and masks ------------------------------------------------------------------------

    def _near(self) -> list[int]:
        """Return the neighbours on the list with whom the client shares keys, as ranks."""
        on_list = self._survivors[self._members]
        return [rank for rank in sorted(self._pair_keys) if on_list[rank]]

    def _list_digest(self) -> bytes:
        packed = np.packbits(self._survivors, bitorder="little").tobytes()
        return hashlib.sha256(b"survivors" + self._setup.digest + packed).digest()

    def _agree(self, advertised: dict[int, bytes]) -> dict[int, bytes]:
        """Return the keys with neighbours: to seal and to confirm upwards, then downwards.

        Where the server may lie it takes the secrets of this round's cipher keys and of identities.
        """
        own: KeyPair = self._cipher_pair
        publics = [row[PUBLIC_BYTES : 2 * PUBLIC_BYTES] for row in advertised.values()]
        clients = [int(self._members[rank]) for rank in advertised]
        if self.document.lying_server:
            assert self._identity is not None
            assert self._roster is not None
            own = Jointly(own, self._identity.agreement)
            known = agreement_keys([self._roster.members[j].key for j in clients])
            publics = [public + key for public, key in zip(publics, known)]
        return {
            rank: agree_on(self._setup, own, public, "share", self.index, j, 128, self._agreed)
            for rank, public, j in zip(advertised, publics, clients)
        }

    def _agree_mask(self, rank: int, advertised: bytes) -> bytes:
        """Return the key of the mask with a neighbour."""
        public, peer = advertised[:PUBLIC_BYTES], int(self._members[rank])
        return pair_mask_key(self._setup, self._mask_pair, public, self.index, peer, self._agreed)

    def _to(self, rank: int) -> bytes:
        """Return the two keys of what goes to a neighbour: for shares, for confirmations."""
        keys = self._pair_keys[rank]
        return keys[:64] if rank > self._own_rank else keys[64:]

    def _from(self, rank: int) -> bytes:
        """Return the two keys of what comes from a neighbour."""
        keys = self._pair_keys[rank]
        return keys[64:] if rank > self._own_rank else keys[:64]

    def _masks(self) -> MaskSum:
        """Return PRG(b_i) + Σ ± PRG(s_ij) over the neighbours that shared their keys."""
        setup = self._setup
        total = MaskSum(setup.length, setup.modulus)
        total.add(self_mask_key(setup, self.index, self._secrets.self_seed))
        for rank, key in self._mask_keys.items():
            total.add(key, sign=mask_sign(self.index, int(self._members[rank])))
        return total


def self_mask_key(setup: RoundSetup, client: int, seed: bytes) -> bytes:
    """Return the key of a client's self mask."""
    return setup.derive(seed, "self mask", client, client)


def pair_mask_key(
    setup: RoundSetup,
    own: KeyPair,
    public: bytes,
    i: int,
    j: int,
    agreed: AgreedOnce | None = None,
) -> bytes:
    """Return the key of the mask of the pair {i, j}, from one's key pair and the other's key."""
    return agree_on(setup, own, public, "pair mask", i, j, 32, agreed)


def agree_on(
    setup: RoundSetup,
    own: KeyPair,
    public: bytes,
    purpose: str,
    i: int,
    j: int,
    size: int,
    agreed: AgreedOnce | None = None,
) -> bytes:
    """Return the key of a purpose of the pair {i, j}: computed, or as the other end computed it."""
    i, j = min(i, j), max(i, j)
    if agreed is None:
        return setup.derive(own.agree(public), purpose, i, j, size)
    return agreed.key(own, public, purpose, setup.digest, i, j, size)


def mask_sign(i: int, j: int) -> int:
    """Return the sign of the mask of {i, j} in the vector of i: the two signs cancel."""
    return 1 if i < j else -1


@lru_cache(maxsize=4)
def _document_text(document: RoundDocument) -> str:
    return document.to_json()


@lru_cache(maxsize=4)
def _document_of(text: str) -> RoundDocument:
    return RoundDocument.from_json(text)


def _to_text(parts: dict[int, bytes]) -> dict[str, str]:
    encode = partial(binascii.b2a_base64, newline=False)
    return {str(rank): encode(data).decode() for rank, data in parts.items()}


def _from_text(parts: dict[str, str]) -> dict[int, bytes]:
    return {int(rank): binascii.a2b_base64(text) for rank, text in parts.items()}
