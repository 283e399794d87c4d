"""The ledger: what many rounds cost together, written down before anything is released.

A charge is made for each observer of a round (:mod:`~sparse_secagg.privacy.observers`); charges
add up. With a path the ledger is one SQLite file and a charge is on disk, synced, when ``charge``
returns: whoever charges first and opens the sum afterwards has charged at least what was released,
wherever it was killed. Several processes may share the file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.privacy.conversion import rdp_to_dp, rdp_to_zcdp
from sparse_secagg.privacy.curves import DEFAULT_ORDERS, Curve, check_orders
from sparse_secagg.privacy.observers import OBSERVERS, RoundPrivacy, rounds_within
from sparse_secagg.validation import check_delta, check_integer, check_positive

__all__ = ["Ledger"]

_VERSION = 1
_APPLICATION_ID = 0x5353414C  # "SSAL" in the file's header
_SECONDS_TO_WAIT = 30.0  # for another process that is writing

_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS settings (
    delta REAL NOT NULL, orders BLOB NOT NULL, adjacency TEXT
);
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT UNIQUE,
    rounds INTEGER NOT NULL,
    total_variation REAL NOT NULL,
    server BLOB NOT NULL,
    colluders BLOB NOT NULL,
    release BLOB NOT NULL
);
"""


@dataclass(frozen=True)
class _Charge:
    """The cost of ``rounds`` rounds together: a curve for each observer, and total variation."""

    rounds: int
    total_variation: float
    curves: tuple[NDArray[np.float64], ...]  # in the order of OBSERVERS

    def row(self) -> tuple[Any, ...]:
        return (self.rounds, self.total_variation, *(curve.tobytes() for curve in self.curves))

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> _Charge:
        return cls(row[0], row[1], tuple(np.frombuffer(blob) for blob in row[2:]))


class Ledger:
    """Add up rounds; answer "ε so far" and "rounds left" for every observer.

    Parameters
    ----------
    delta : float
        The δ of every ε reported.
    orders : sequence of float
        Orders at which curves are added.
    path : path, optional
        File that keeps the charges; created, readable by its owner only, where there is none. An
        existing ledger goes on, and must have the same δ and orders. Without a path the ledger
        lives in memory and ends with the process.

    Raises
    ------
    ValueError
        If δ or the orders are out of range, or the file at the path is not such a ledger.

    See Also
    --------
    RoundPrivacy : What is charged.
    sparse_secagg.Budget : A client's own account.

    Notes
    -----
    A ledger is an account: copying it, as ``sklearn.base.clone`` does, gives the same account.

    Examples
    --------
    >>> from functools import partial
    >>> from sparse_secagg.accounting import Ledger, gaussian_rdp
    >>> ledger = Ledger(delta=1e-5)
    >>> ledger.spend(partial(gaussian_rdp, noise_multiplier=10.0), rounds=4)
    >>> round(ledger.epsilon_server, 3)
    0.795
    >>> ledger.rounds_left(1.0)
    2
    """

    def __init__(
        self,
        delta: float,
        orders: Sequence[float] = DEFAULT_ORDERS,
        *,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.delta = check_delta(delta)
        self.orders = tuple(float(a) for a in check_orders(orders))
        self.path = None if path is None else Path(path).absolute()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(
                ":memory:", check_same_thread=False, isolation_level=None
            )
        else:
            _create_privately(self.path)
        try:
            with self._connection() as connection:
                self._prepare(connection)
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"path={str(self.path)!r} is not a ledger of this software ({error}); give "
                "another path."
            ) from None

    # -- charging -------------------------------------------------------------------------------

    def charge(self, privacy: RoundPrivacy, *, rounds: int = 1, key: str | None = None) -> int:
        """Charge rounds before they are opened; return the number of the charge.

        Parameters
        ----------
        privacy : RoundPrivacy
            Of one round, at worst: with the survivors that are guaranteed.
        rounds : int
            How many such rounds.
        key : str, optional
            Names the release. A second charge of the same key adds nothing, so it is only for
            releases that are the same bit for bit when repeated: simulations.
        """
        return self._add(self._charge_of(privacy, rounds), key, privacy.adjacency)

    def settle(self, number: int, privacy: RoundPrivacy) -> None:
        """Replace a charge by what the round really cost, once the survivors are known."""
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT rounds FROM charges WHERE id = ?", (number,)
            ).fetchone()
            if row is None:
                raise ValueError(f"number={number} is no charge of this ledger.")
            connection.execute(
                "UPDATE charges SET rounds = ?, total_variation = ?, server = ?, colluders = ?, "
                "release = ? WHERE id = ?",
                (*self._charge_of(privacy, row[0]).row(), number),
            )

    def spend(
        self,
        rdp: Curve | ArrayLike,
        *,
        release_rdp: Curve | ArrayLike | None = None,
        rounds: int = 1,
        total_variation: float = 0.0,
    ) -> None:
        """Record ``rounds`` rounds of a mechanism given by its curve.

        Parameters
        ----------
        rdp : callable or array-like
            Curve of one round without amplification: a function of the orders (a mechanism's
            ``rdp``), or its values at ``self.orders``.
        release_rdp : callable or array-like, optional
            Curve of one round for an observer of the release only. Default: ``rdp``.
        rounds : int
            How many such rounds.
        total_variation : float
            Distance of one round's sampler from exact noise, charged to δ.
        """
        check_integer("rounds", rounds, 1)
        check_positive("total_variation", total_variation, or_zero=True)
        server = rounds * self._values("rdp", rdp)
        release = server
        if release_rdp is not None:
            release = rounds * self._values("release_rdp", release_rdp)
        self._add(_Charge(int(rounds), rounds * total_variation, (server, server, release)))

    # -- what was spent -------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds charged."""
        return self._total().rounds

    @property
    def total_variation(self) -> float:
        """Distance of all noise from the ideal, charged to δ."""
        return self._total().total_variation

    def epsilon(self, observer: str = "server") -> float:
        """Return ε so far against ``observer``: "server", "colluders" or "release"."""
        which, total = _index(observer), self._total()
        return rdp_to_dp(self.orders, total.curves[which], self.delta, total.total_variation)

    def epsilon_with(self, privacy: RoundPrivacy, observer: str = "server") -> float:
        """Return what ε would be after one more round; nothing is charged."""
        which, total = (
            _index(observer),
            _sum([self._total(), self._charge_of(privacy, 1)], len(self.orders)),
        )
        return rdp_to_dp(self.orders, total.curves[which], self.delta, total.total_variation)

    def rdp(self, observer: str = "server") -> NDArray[np.float64]:
        """Return the Rényi curve of all charges against ``observer``, at the ledger's orders."""
        return self._total().curves[_index(observer)]

    @property
    def epsilon_server(self) -> float:
        """ε against the server, which knows the cohort."""
        return self.epsilon("server")

    @property
    def epsilon_release(self) -> float:
        """ε against an observer of the released results only."""
        return self.epsilon("release")

    def zcdp_epsilon(self, observer: str = "server") -> float:
        """Return the paper's ε of all rounds against ``observer``."""
        return rdp_to_zcdp(self.orders, self._total().curves[_index(observer)])

    def rounds_left(self, epsilon: float, observer: str = "server") -> int:
        """Return how many more rounds like the last one keep the ε of ``observer`` ≤ ``epsilon``.

        Parameters
        ----------
        epsilon : float
            The budget.
        observer : {"server", "colluders", "release"}
            Whose ε is meant.
        """
        check_positive("epsilon", epsilon)
        which, spent, last = _index(observer), self._total(), self._last()
        if last is None:
            raise ValueError("The ledger is empty; spend one round before asking what is left.")
        step, tv = last.curves[which] / last.rounds, last.total_variation / last.rounds

        def fits(more: int) -> bool:
            rdp = spent.curves[which] + more * step
            return rdp_to_dp(self.orders, rdp, self.delta, spent.total_variation + more * tv) <= (
                epsilon
            )

        return rounds_within(fits)

    # -- as text --------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the ledger as JSON, without loss: the last charge, and the sum of the earlier."""
        charges = self._charges()
        parts = [_sum(charges[:-1], len(self.orders)), *charges[-1:]]
        document = {
            "version": _VERSION,
            "delta": self.delta,
            "orders": list(self.orders),
            "charges": [
                {
                    "rounds": part.rounds,
                    "total_variation": part.total_variation,
                    **{name: list(curve) for name, curve in zip(OBSERVERS, part.curves)},
                }
                for part in parts
                if part.rounds
            ],
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger written by :meth:`to_json`, in memory."""
        document = json.loads(text)
        if document.get("version") != _VERSION:
            raise ValueError(
                f"the ledger has version {document.get('version')}, this software reads {_VERSION}."
            )
        ledger = cls(document["delta"], document["orders"])
        for part in document["charges"]:
            curves = tuple(np.array(part[name], dtype=np.float64) for name in OBSERVERS)
            ledger._add(_Charge(part["rounds"], part["total_variation"], curves))
        return ledger

    def __repr__(self) -> str:
        where = "" if self.path is None else f", path={str(self.path)!r}"
        return f"Ledger(delta={self.delta!r}{where})"

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError(
                "a ledger in memory cannot be pickled: two copies would each forget what the "
                "other spends. Give it a path, which processes can share."
            )
        return _open, (self.delta, self.orders, str(self.path))

    # -- storage --------------------------------------------------------------------------------

    def _prepare(self, connection: sqlite3.Connection) -> None:
        orders = np.array(self.orders).tobytes()
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and found != _APPLICATION_ID:
            raise sqlite3.DatabaseError("another kind of database")
        connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
        with self._transaction() as transaction:
            settings = transaction.execute("SELECT delta, orders FROM settings").fetchone()
            if settings is None:
                transaction.execute(
                    "INSERT INTO settings VALUES (?, ?, NULL)", (self.delta, orders)
                )
        if settings is not None and settings[0] != self.delta:
            raise ValueError(
                f"delta={self.delta} differs from delta={settings[0]} of the ledger "
                f"{str(self.path)!r}; use its delta, or another path."
            )
        if settings is not None and settings[1] != orders:
            raise ValueError(f"orders differ from those of the ledger {str(self.path)!r}.")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection; to a file always a new one, since they do not survive a fork."""
        with self._lock:
            if self._memory is not None:
                if os.getpid() != self._process:
                    raise RuntimeError(
                        "this ledger lives in the memory of another process, which would not "
                        "learn of the charge; give it a path, which processes can share."
                    )
                yield self._memory
                return
            assert self.path is not None
            connection = sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
            try:
                # EXTRA syncs the folder too, so that a committed charge survives a power cut
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
            finally:
                connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def _add(self, charge: _Charge, key: str | None = None, adjacency: str | None = None) -> int:
        with self._transaction() as connection:
            if adjacency is not None:
                _keep_to_one_adjacency(connection, adjacency)
            if key is not None:
                found = connection.execute("SELECT id FROM charges WHERE key = ?", (key,))
                for (number,) in found:
                    return int(number)
            done = connection.execute(
                "INSERT INTO charges (key, rounds, total_variation, server, colluders, release) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (key, *charge.row()),
            )
            return int(done.lastrowid or 0)

    def _charges(self, which: str = "ORDER BY id") -> list[_Charge]:
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT rounds, total_variation, server, colluders, release FROM charges {which}"
            )
            return [_Charge.from_row(row) for row in rows]

    def _last(self) -> _Charge | None:
        return next(iter(self._charges("ORDER BY id DESC LIMIT 1")), None)

    def _total(self) -> _Charge:
        return _sum(self._charges(), len(self.orders))

    def _charge_of(self, privacy: RoundPrivacy, rounds: int) -> _Charge:
        check_integer("rounds", rounds, 1)
        if privacy.delta != self.delta:
            raise ValueError(
                f"the round is accounted at delta={privacy.delta}, the ledger at {self.delta}; "
                "use one delta for both."
            )
        curves = tuple(
            rounds * self._values(observer, privacy.rdp(self.orders, observer))
            for observer in OBSERVERS
        )
        return _Charge(int(rounds), rounds * privacy.total_variation, curves)

    def _values(self, name: str, rdp: Curve | ArrayLike) -> NDArray[np.float64]:
        values = rdp(np.array(self.orders)) if callable(rdp) else rdp
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (len(self.orders),):
            raise ValueError(
                f"{name} has shape {values.shape}; it must hold one value for each of the "
                f"{len(self.orders)} orders of the ledger."
            )
        if np.isnan(values).any() or (values < 0).any():
            raise ValueError(f"{name} holds NaN or negative values; a Rényi divergence is neither.")
        return values


def _keep_to_one_adjacency(connection: sqlite3.Connection, adjacency: str) -> None:
    """Note the neighbours that the first charge is about; refuse others, which do not add up."""
    (found,) = connection.execute("SELECT adjacency FROM settings").fetchone()
    if found is None:
        connection.execute("UPDATE settings SET adjacency = ?", (adjacency,))
    elif found != adjacency:
        raise ValueError(
            f"adjacency={adjacency!r} differs from {found!r} of the ledger's earlier charges; "
            "their sum would be true of neither. Use one ledger for each."
        )


def _sum(charges: Sequence[_Charge], n_orders: int) -> _Charge:
    rounds, tv = 0, 0.0
    curves = tuple(np.zeros(n_orders) for _ in OBSERVERS)
    for charge in charges:
        rounds, tv = rounds + charge.rounds, tv + charge.total_variation
        curves = tuple(a + b for a, b in zip(curves, charge.curves))
    return _Charge(rounds, tv, curves)


def _index(observer: str) -> int:
    if observer not in OBSERVERS:
        raise ValueError(f"observer={observer!r} must be one of {', '.join(OBSERVERS)}.")
    return OBSERVERS.index(observer)


def _open(delta: float, orders: Sequence[float], path: str) -> Ledger:
    return Ledger(delta, orders, path=path)


def _create_privately(path: Path) -> None:
    """Make an empty file that only its owner can read, unless there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ValueError(
            f"path={str(path)!r} cannot be written ({error.strerror}); the ledger must be able to "
            "record a charge before anything is released."
        ) from None
