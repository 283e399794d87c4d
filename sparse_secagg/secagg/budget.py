"""A client's memory in one SQLite file: what it may spend in its life, and what it has spent.

Rényi curves of all rounds, each against its server and the colluders, add up: Σ ε_r(α), and one
conversion gives the ε at the lifetime's δ. A charge is on disk, synced, when :meth:`Budget.charge`
returns; check and charge are one transaction, so threads and processes that share the file cannot
spend the same ε twice. The file also remembers which rounds were answered, which saved states were
continued, and the newest version of each roster.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.privacy.conversion import rdp_to_dp
from sparse_secagg.privacy.curves import DEFAULT_ORDERS
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.validation import check_delta, check_positive

_APPLICATION_ID = 0x53534142  # "SSAB" in the file's header
_VERSION = 1
_SECONDS_TO_WAIT = 30.0  # for another process that is writing

_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
CREATE TABLE lifetime (epsilon REAL NOT NULL, delta REAL NOT NULL, orders BLOB NOT NULL);
CREATE TABLE charges (
    round TEXT PRIMARY KEY, curve BLOB NOT NULL, total_variation REAL NOT NULL
);
CREATE TABLE continued (token BLOB PRIMARY KEY);
CREATE TABLE rosters (name TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL);
"""


class Budget:
    """The lifetime budget of one client.

    Parameters
    ----------
    path : path
        The file; created, readable by its owner only, where there is none.
    epsilon, delta : float, optional
        What the client may spend over its life. Needed for a new file; an existing one has its own,
        and others are refused.

    See Also
    --------
    ClientAgent : Charges it before a masked vector leaves.
    sparse_secagg.privacy.Ledger : The server's account of all rounds.

    Examples
    --------
    >>> import tempfile, os
    >>> from sparse_secagg.secagg.budget import Budget
    >>> budget = Budget(os.path.join(tempfile.mkdtemp(), "budget.sqlite"), epsilon=8.0, delta=1e-5)
    >>> budget.rounds, budget.spent, budget.left
    (0, 0.0, 8.0)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        if not self.path.exists():
            self._create(epsilon, delta)
        self.epsilon, self.delta, self.orders = self._read()
        for name, given, own in (("epsilon", epsilon, self.epsilon), ("delta", delta, self.delta)):
            if given is not None and given != own:
                raise ValueError(
                    f"{name}={given} differs from {name}={own} of the budget {str(self.path)!r}. "
                    "A lifetime is set once: leave it out, or take another file."
                )

    # -- what was spent ------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds that were charged."""
        with self._connection() as connection:
            return int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])

    @property
    def spent(self) -> float:
        """ε of all rounds together, at the lifetime's δ."""
        with self._connection() as connection:
            return self._epsilon(*self._total(connection))

    @property
    def left(self) -> float:
        """The part of the lifetime's ε that is left. Rounds add up by curves, to less than by ε."""
        return max(0.0, self.epsilon - self.spent)

    def rounds_left(self, privacy: RoundPrivacy, most: int = 1 << 20) -> int:
        """Return how many rounds like this one are left, at most ``most``."""
        with self._connection() as connection:
            spent, distance = self._total(connection)
        step = privacy.rdp(self.orders, "colluders")

        def fits(rounds: int) -> bool:
            tv = distance + rounds * privacy.total_variation
            return self._epsilon(spent + rounds * step, tv) <= self.epsilon

        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    # -- what a client does ----------------------------------------------------------------------

    def check(self, round_id: str, privacy: RoundPrivacy) -> None:
        """Raise :class:`RefusedRoundError` unless the round could be charged now."""
        with self._transaction() as connection:
            self._check(connection, round_id, privacy)

    def charge(self, round_id: str, privacy: RoundPrivacy) -> None:
        """Charge a round, durably and once; raise :class:`RefusedRoundError` if it must not be."""
        with self._transaction() as connection:
            curve = self._check(connection, round_id, privacy)
            connection.execute(
                "INSERT INTO charges VALUES (?, ?, ?)",
                (round_id, curve.tobytes(), privacy.total_variation),
            )

    def claim(self, token: bytes) -> None:
        """Note that a saved state continues; raise :class:`RefusedRoundError` the second time."""
        with self._transaction() as connection:
            found = connection.execute("SELECT 1 FROM continued WHERE token = ?", (token,))
            if found.fetchone() is not None:
                raise RefusedRoundError(
                    "this saved state has continued before; a copy of it would answer twice."
                )
            connection.execute("INSERT INTO continued VALUES (?)", (token,))

    def meet(self, name: str, version: int, digest: bytes) -> None:
        """Remember a roster's version; raise if it is older than one seen, or another."""
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT version, digest FROM rosters WHERE name = ?", (name,)
            ).fetchone()
            if row is not None and (version < row[0] or (version == row[0] and digest != row[1])):
                raise RefusedRoundError(
                    f"the roster {name!r} has version {version}, and this client knows version "
                    f"{row[0]}, which is newer or different; get the current one."
                )
            connection.execute(
                "INSERT OR REPLACE INTO rosters VALUES (?, ?, ?)", (name, version, digest)
            )

    def __repr__(self) -> str:
        return f"Budget({str(self.path)!r}, epsilon={self.epsilon}, delta={self.delta})"

    # -- storage ---------------------------------------------------------------------------------

    def _check(
        self, connection: sqlite3.Connection, round_id: str, privacy: RoundPrivacy
    ) -> NDArray[np.float64]:
        """Return the round's curve if it may be charged."""
        found = connection.execute("SELECT 1 FROM charges WHERE round = ?", (round_id,))
        if found.fetchone() is not None:
            raise RefusedRoundError(
                f"round_id={round_id[:50]!r} was answered before; answering twice would double the "
                "privacy spent."
            )
        curve = np.asarray(privacy.rdp(self.orders, "colluders"), dtype=np.float64)
        spent, distance = self._total(connection)
        together = self._epsilon(spent + curve, distance + privacy.total_variation)
        if not together <= self.epsilon:
            raise RefusedRoundError(
                f"with this round the client would have spent epsilon={together:.4g} in its life, "
                f"above its budget of {self.epsilon:.4g}."
            )
        return curve

    def _total(self, connection: sqlite3.Connection) -> tuple[NDArray[np.float64], float]:
        curve, distance = np.zeros(len(self.orders)), 0.0
        for blob, part in connection.execute("SELECT curve, total_variation FROM charges"):
            if not self._is_charge(blob, part):
                raise sqlite3.DatabaseError("it holds a charge that is none")
            curve, distance = curve + np.frombuffer(blob), distance + part
        return curve, distance

    def _is_charge(self, blob: Any, distance: Any) -> bool:
        """Return whether this is what :meth:`charge` writes; a damaged file must not cost less."""
        if not (isinstance(blob, bytes) and len(blob) == self.orders.nbytes):
            return False
        return bool(
            isinstance(distance, float) and distance >= 0 and (np.frombuffer(blob) >= 0).all()
        )

    def _epsilon(self, curve: NDArray[np.float64], distance: float) -> float:
        if not curve.any() and not distance:
            return 0.0
        return rdp_to_dp(self.orders, curve, self.delta, distance)

    def _create(self, epsilon: float | None, delta: float | None) -> None:
        if epsilon is None or delta is None:
            raise ValueError(
                f"there is no budget at {str(self.path)!r}; pass epsilon and delta, which the "
                "client may spend over its life, to make one."
            )
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
        # Made beside its place and moved there whole, so that nobody sees half a budget.
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            connection = sqlite3.connect(draft, isolation_level=None)
            connection.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
            connection.execute(
                "INSERT INTO lifetime VALUES (?, ?, ?)",
                (epsilon, delta, np.array(DEFAULT_ORDERS, dtype=np.float64).tobytes()),
            )
            connection.close()
            # If another process was faster, its file counts.
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            os.unlink(draft)

    def _read(self) -> tuple[float, float, NDArray[np.float64]]:
        try:
            with self._connection() as connection:
                if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
                    raise sqlite3.DatabaseError("another kind of database")
                row = connection.execute("SELECT epsilon, delta, orders FROM lifetime").fetchone()
            orders = np.frombuffer(row[2])
            if not all(isinstance(value, float) and value > 0 for value in (*row[:2], *orders)):
                raise ValueError("it holds no lifetime")
        except (ValueError, TypeError) as error:  # a refusal is one
            raise ValueError(
                f"path={str(self.path)!r} is not a budget of this software ({error})."
            ) from None
        return row[0], row[1], orders

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection, since they survive neither forks nor other threads."""
        if not self.path.exists():
            raise RefusedRoundError(
                f"the budget {str(self.path)!r} is gone; nobody knows what was spent."
            )
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
            ) as connection:
                # EXTRA syncs the folder too, so that a committed charge survives a power cut
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except (sqlite3.Error, UnicodeError) as error:
            raise RefusedRoundError(
                f"the budget {str(self.path)!r} cannot be read or written ({error}), and nothing "
                "leaves without a charge."
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection on which all happens or nothing; what fails is refused."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def __reduce__(self) -> tuple[Any, ...]:
        return Budget, (str(self.path),)
