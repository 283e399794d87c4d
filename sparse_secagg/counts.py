"""PrivateCounts: from a table of (user, item) to counts of users that can be published.

Every user contributes a 0/1 vector x of at most ``max_items`` items, ‖x‖ ≤ √max_items; one private
round estimates the mean of these vectors, and n times the mean are counts. Which items are counted
must not depend on the data: a public list, the cells of a public hash, or items that nobody can
list, found by a second round that votes on their bits.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sparse_secagg.counting import report
from sparse_secagg.counting.contributions import (
    Contributions,
    Held,
    presence,
    presence_and_values,
)
from sparse_secagg.counting.domains import OPEN, Domain, HashedItems, make_domain
from sparse_secagg.counting.names import Ballot, ItemCodes, VoteRows
from sparse_secagg.counting.results import (
    Amount,
    Count,
    Estimates,
    Evaluation,
    amounts,
    evaluate,
    truth_of,
    write_csv,
)
from sparse_secagg.counting.sizes import EDGES, chosen_limit, size_rows
from sparse_secagg.counting.stages import (
    Account,
    Stage,
    check_prior,
    count_stage,
    privacy_of,
    shares_of,
    size_stage,
    vote_stage,
)
from sparse_secagg.counting.tables import read_batches, text_of
from sparse_secagg.exceptions import PrivacyWarning
from sparse_secagg.mechanisms.randomness import (
    PrivateRandomness,
    Randomness,
    SimulationRandomness,
)
from sparse_secagg.parameters import (
    check_parameter,
    default,
    round_parameters,
    takes_round_parameters,
)
from sparse_secagg.privacy.conversion import stated
from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.round.aggregate import Aggregate
from sparse_secagg.round.run import open_ledger
from sparse_secagg.round.spec import RoundSpec
from sparse_secagg.validation import check_integer, check_positive

__all__ = ["PrivateCounts"]

#: Parameters of a round that make sense for counts; the others follow from what is counted.
_TAKEN = (
    "epsilon", "delta", "n_bits", "adjacency", "min_survivors", "colluders", "compression",
    "n_rows", "mechanism", "secagg", "prior",
)  # fmt: skip
_LEFT_OUT = tuple(name for name in round_parameters() if name not in _TAKEN)
_DEFAULTS = {"delta": 1e-6, "n_bits": None, "compression": None}
_STAGES = ("sizes", "counts", "names")
_round_parameters = takes_round_parameters(defaults=_DEFAULTS, leave_out=_LEFT_OUT)


class PrivateCounts(BaseEstimator):
    """How many users hold each item, privately, from a table of users and items.

    Parameters
    ----------
    domain : list, path, int or "open"
        Which items are counted: a public list, or a file with one item per line; a number of hash
        cells, to be named afterwards by any list of candidates; or "open": items that nobody can
        list are found and spelt out by a second round.
    max_items : int, optional
        Items that one user may contribute; which ones is drawn at random. None: chosen from a noisy
        histogram of how many items users hold, at 5 % of the budget.
    n_users : int, optional
        Public number of users; those without rows hold nothing. None: the number of users in the
        table, which is then public.
    max_bytes : int, default=10000
        What a user sends at most in the rounds of sizes and counts, where ``compression`` is None.
    max_weight : float, optional
        Largest magnitude of what a user contributes to one item's sum, for ``fit(weight=...)``.
    item_bytes : int, default=16
        With ``domain="open"``: items up to so many bytes of UTF-8 are spelt out; longer ones are
        reported by their cell.
    ledger : Ledger or path, optional
        Charged by every round of a ``fit`` before any message of it is made.
    random_state : int, optional
        Public randomness only: sketches and rotations.
    simulation_seed : int, optional
        Seeds the private randomness too: reproducible, and **not private**. For experiments.
    diagnostics : bool, default=False
        Keep the exact bounded counts as ``bounded_counts_``: not private, not pickled.
    progress : callable, optional
        Called with a line of text before each step.
    epsilon, delta, adjacency, min_survivors, colluders, prior : see RoundSpec
        Parameters of all rounds together; ``delta`` is 1e-6 by default.
    compression, n_bits, n_rows, mechanism, secagg : see RoundSpec
        Parameters of each round; the first two follow from ``max_bytes`` by default.

    Attributes
    ----------
    counts_ : ndarray of shape (d,)
        Unbiased estimates of the number of users, for every column of the domain.
    std_err_ : ndarray of shape (d,)
        Their standard errors.
    max_items_ : int
        The limit used.
    n_users_ : int
        Users in the round; public.
    epsilon_, zcdp_epsilon_ : float
        What all rounds cost together, by the sum of their Rényi curves.
    bytes_per_client_ : dict
        Bytes that a user sent in each round.
    aggregates_ : dict
        Result of each round, which can be saved and decoded again.
    names_ : dict
        With ``domain="open"``: cells that were named.
    trusted_ : bool
        Whether the decoder's own checks agree with its standard errors; if not, intervals and
        ``significant`` are not to be relied on.
    not_private_ : bool
        True for simulations and for rounds without noise.

    See Also
    --------
    SparseSecAgg : The round behind it.

    Notes
    -----
    Neighbouring tables differ in all rows of one user (``adjacency="zero_out"``): the user is still
    counted in ``n_users`` and holds nothing. Counts are of users after bounding: with K items of a
    user that holds more, each is counted with probability K over their number.

    Examples
    --------
    >>> from sparse_secagg import PrivateCounts
    >>> users = [u for u in range(2000) for _ in range(2)]
    >>> items = ["bread", "milk"] * 2000
    >>> counts = PrivateCounts(domain=["bread", "milk", "salt"], max_items=2, epsilon=4.0)
    >>> sorted(record.item for record in counts.fit(users, items).top(2))
    ['bread', 'milk']
    """

    takes_round_parameters: ClassVar[bool] = True

    @_round_parameters
    def __init__(
        self,
        *,
        domain: Any = None,
        max_items: int | None = None,
        n_users: int | None = None,
        max_bytes: int = 10_000,
        max_weight: float | None = None,
        item_bytes: int = 16,
        ledger: Any = None,
        random_state: Any = None,
        simulation_seed: int | None = None,
        diagnostics: bool = False,
        progress: Callable[[str], None] | None = None,
        **parameters: Any,
    ) -> None:
        unknown = sorted(set(parameters) - set(_TAKEN))
        if unknown:
            raise TypeError(f"PrivateCounts has no parameter {unknown[0]!r}.")
        self.domain = domain
        self.max_items = max_items
        self.n_users = n_users
        self.max_bytes = max_bytes
        self.max_weight = max_weight
        self.item_bytes = item_bytes
        self.ledger = ledger
        self.random_state = random_state
        self.simulation_seed = simulation_seed
        self.diagnostics = diagnostics
        self.progress = progress
        for name in _TAKEN:
            setattr(self, name, parameters.get(name, default(name)))

    # -- fitting ------------------------------------------------------------------------------

    def fit(
        self,
        table: Any,
        items: Any = None,
        *,
        user: str | None = None,
        item: str | None = None,
        weight: str | None = None,
    ) -> Self:
        """Count the users of each item, privately.

        Parameters
        ----------
        table : object
            The users, one per row, if ``items`` is given; or a pandas, polars or pyarrow table, a
            dictionary of columns, or a path to a CSV or Parquet file.
        items : sequence, optional
            The items, one per row. A missing or empty item counts as none.
        user, item : str
            Names of the columns of a table.
        weight : str, optional
            Column of numbers to add up by item, for :meth:`sums`; a user's sum for an item is
            clipped to ±``max_weight``.
        """
        domain, codes = self._check(weight)
        rng = self._randomness()
        with Contributions(domain, rng, weighted=weight is not None, codes=codes) as rows:
            self._say("reading the table")
            rows.read(read_batches(table, items, user=user, item=item, weight=weight))
            run = _Run(self, domain, codes, rows, rng, weighted=weight is not None)
            with warnings.catch_warnings():
                # said once above, about all rounds
                warnings.filterwarnings("ignore", ".*simulation_seed.*", PrivacyWarning)
                fitted = run.run()
        for name in ("names_", "sums_", "bounded_counts_", "_cells"):
            self.__dict__.pop(name, None)
        self.__dict__.update(fitted)
        return self

    def _check(self, weight: str | None) -> tuple[Domain, ItemCodes | None]:
        """Raise for parameters that make no sense, before anything is read."""
        for name in _TAKEN:
            check_parameter(name, getattr(self, name))
        if not isinstance(self.mechanism, str):
            raise ValueError("mechanism must be a name: the budget is split over several rounds.")
        for name, value in (("max_items", self.max_items), ("n_users", self.n_users)):
            if value is not None:
                check_integer(name, value, 1)
        check_integer("max_bytes", self.max_bytes, 1)
        check_integer("item_bytes", self.item_bytes, 1, 1024)
        if weight is not None and self.max_weight is None:
            raise ValueError(
                f"weight={weight!r} needs max_weight, the largest magnitude that a user may "
                "contribute to one item; choose it without looking at the data."
            )
        if self.max_weight is not None:
            check_positive("max_weight", self.max_weight)
        open_ledger(self.ledger, self.delta)
        domain = make_domain(self.domain)
        is_open = isinstance(self.domain, str) and self.domain == OPEN
        return domain, ItemCodes(self.item_bytes) if is_open else None

    def _randomness(self) -> Randomness:
        if self.simulation_seed is None:
            return PrivateRandomness()
        warnings.warn(
            f"simulation_seed={self.simulation_seed} makes all private randomness predictable: the "
            "result is not private. Leave it out for real data.",
            PrivacyWarning,
            stacklevel=3,
        )
        return SimulationRandomness(self.simulation_seed)

    def _say(self, text: str) -> None:
        if self.progress is not None:
            self.progress(text)

    # -- rounds between parties ---------------------------------------------------------------

    def specs(
        self, n_users: int, *, max_items: int | None = None, ballot: Ballot | None = None
    ) -> list[Stage]:
        """Return the rounds that parties would run, in order, each with the length of a vector.

        Together they stay within (ε, δ).

        Parameters
        ----------
        n_users : int
            Users that take part.
        max_items : int, optional
            Items per user, where ``max_items`` of the estimator is None: what the first round led
            to. Without it the round of counts is planned for one item.
        ballot : Ballot, optional
            With ``domain="open"``: what :meth:`ballot` made of the round of counts. Without it the
            round of names is planned for 64 cells and two votes.
        """
        domain, codes = self._check(None)
        account, base = Account(self.epsilon, self.delta), self._base()
        z = self._multipliers(codes is not None)
        limit = min(self.max_items or max_items or 1, domain.size)
        stages = self._until_counts(base, z, domain, n_users, limit)
        if codes is not None:
            ballot = ballot or Ballot(tuple(range(64)), 2, codes)
            if not ballot.cells:
                raise ValueError("the ballot has no cells: none stood out, so none can be named.")
            stages.append(_stage_of(ballot, base, z["names"], n_users))
        for stage in stages[:-1]:
            account.add(privacy_of(stage.spec, stage.dim, n_users))
        return [*stages[:-1], account.last(stages[-1], n_users)]

    def size_vector(self, items: Sequence[Any]) -> NDArray[np.float64]:
        """Return the vector that a user with these items contributes to the round of sizes."""
        domain, _ = self._check(None)
        held = _held_by_one(domain, items)
        return np.asarray(size_rows(held.sizes, 1).toarray()[0])

    def limit(self, aggregate: Aggregate) -> int:
        """Return the ``max_items`` that a round of sizes leads to.

        Parameters
        ----------
        aggregate : Aggregate
            Result of the round of sizes.
        """
        n = aggregate.n_survivors
        return chosen_limit(aggregate.sketch * n, aggregate.noise_std * n)

    def vector(self, items: Sequence[Any], *, max_items: int | None = None) -> NDArray[np.float64]:
        """Return the vector that a user with these items contributes to the round of counts.

        The choice among more than ``max_items`` is the user's own, drawn here.

        Parameters
        ----------
        items : sequence
            What the user holds.
        max_items : int, optional
            The limit, where ``max_items`` of the estimator is None: what the round of sizes led to.
        """
        domain, _ = self._check(None)
        limit = self.max_items or max_items
        if limit is None:
            raise ValueError("max_items=None: give the limit that the round of sizes led to.")
        held = _held_by_one(domain, items).limited(limit, self._randomness())
        return np.asarray(presence(held, 1, domain.size).toarray()[0])

    def ballot(self, aggregate: Aggregate) -> Ballot:
        """Return what the round of names asks, from that of counts; needs ``domain="open"``.

        Parameters
        ----------
        aggregate : Aggregate
            Result of the round of counts.
        """
        _, codes = self._check(None)
        codes = _codes_of_open(codes)
        n = aggregate.n_survivors
        solver = aggregate.unbiased
        std_err = np.broadcast_to(solver.std_err_, solver.coef_.shape)
        found = Estimates(n * solver.coef_, n * std_err, _sketch_length(aggregate), n)
        return _ballot(found, codes, self._multipliers(True)["names"])

    def votes(self, items: Sequence[Any], ballot: Ballot) -> NDArray[np.float64]:
        """Return the vector that a user with these items contributes to the round of names.

        Plus or minus one for every bit of at most ``ballot.votes`` of its items that lie in the
        ballot's cells, drawn at random here where it holds more.

        Parameters
        ----------
        items : sequence
            What the user holds.
        ballot : Ballot
            What the round asks.
        """
        domain, codes = self._check(None)
        place = {cell: k for k, cell in enumerate(ballot.cells)}
        held = _held_by_one(domain, items, _codes_of_open(codes))
        assert held.codes is not None
        known = np.array([cell in place for cell in held.columns.tolist()], dtype=bool)
        held = held.kept(known & (held.codes[:, 0] > 0)).limited(ballot.votes, self._randomness())
        columns = np.array([place[cell] for cell in held.columns.tolist()], dtype=np.int64)
        voted = Held(held.indptr, columns, None, held.codes)
        return np.asarray(VoteRows(voted, 1, len(ballot.cells))[:1].toarray()[0])

    def names(self, aggregate: Aggregate, ballot: Ballot) -> dict[int, str]:
        """Return the cells that the round of names spelt out, and their items.

        Parameters
        ----------
        aggregate : Aggregate
            Result of the round of names.
        ballot : Ballot
            What it asked.
        """
        domain, _ = self._check(None)
        return ballot.names(aggregate.sketch, domain)

    def _multipliers(self, is_open: bool) -> dict[str, float]:
        """Return z of every round, in order."""
        account = Account(self.epsilon, self.delta)
        shares = shares_of(self.max_items is not None, is_open)
        return {name: account.multiplier(share, self.adjacency) for name, share in shares.items()}

    def _base(self) -> RoundSpec:
        return RoundSpec(
            **{name: getattr(self, name) for name in _TAKEN if name != "n_bits"}
        ).replace(n_bits=self.n_bits)

    def _until_counts(
        self,
        base: RoundSpec,
        z: dict[str, float],
        domain: Domain,
        n: int,
        limit: int,
        weighted: bool = False,
    ) -> list[Stage]:
        """Return the rounds up to that of the counts, whose messages keep to ``max_bytes``."""
        before = [size_stage(base, z["sizes"], len(EDGES))] if "sizes" in z else []
        spent = sum(_bytes_of(stage, n) for stage in before)
        norm, left = math.sqrt(2 * limit if weighted else limit), self.max_bytes - spent
        stage = count_stage(base, z["counts"], domain.size, n, norm, left, weighted)
        needed = spent + _bytes_of(stage, n)
        if self.compression is None and needed > self.max_bytes:
            raise ValueError(
                f"max_bytes={self.max_bytes} cannot hold the shortest messages of this round; "
                f"give at least {needed:,}."
            )
        return [*before, stage]

    # -- results: free of charge --------------------------------------------------------------

    def top(self, k: int = 100, *, candidates: Sequence[Any] | None = None) -> list[Count]:
        """Return the k largest counts, in decreasing order, with intervals adjusted for that.

        Parameters
        ----------
        k : int
            How many.
        candidates : sequence, optional
            Names for the cells of a hashed domain; those that share a cell are named together.
        """
        check_is_fitted(self)
        columns = self._estimates.largest(check_integer("k", k, 1))
        return self._estimates.records(columns, self._names(columns, candidates), selected=True)

    def estimate(self, items: Sequence[Any]) -> list[Count]:
        """Return the counts of items that were named without looking at the results.

        Items without a column in the domain are left out.
        """
        check_is_fitted(self)
        names = _texts(items)
        columns = self.domain_.columns(names)
        inside = columns >= 0
        kept = [name for name, has in zip(names, inside) if has]
        return self._estimates.records(columns[inside], kept, selected=False)

    def discoveries(self, *, candidates: Sequence[Any] | None = None) -> list[Count]:
        """Return all items that somebody holds, at most 5 % of them wrongly in expectation."""
        check_is_fitted(self)
        columns = self._estimates.discoveries()
        columns = columns[np.argsort(-self.counts_[columns], kind="stable")]
        return self._estimates.records(columns, self._names(columns, candidates), selected=True)

    def sums(self, k: int = 100, *, candidates: Sequence[Any] | None = None) -> list[Amount]:
        """Return the k largest sums of weights, and means per user; needs ``fit(weight=...)``."""
        check_is_fitted(self)
        if not hasattr(self, "sums_"):
            raise ValueError("sums need a column of numbers: fit(..., weight='column').")
        columns = self.sums_.largest(check_integer("k", k, 1))
        return amounts(self._estimates, self.sums_, columns, self._names(columns, candidates))

    def total(self, k: int = 100) -> dict[str, Count]:
        """Return the number of (user, item) pairs, and of those outside the k largest counts."""
        check_is_fitted(self)
        check_integer("k", k, 1)
        parts = {"total": self._estimates.total(), "everything else": self._estimates.rest(k)}
        most = self.n_users_ * self.max_items_  # public
        return {
            name: Count(name, *_clipped(found, most), found[1] > 0)
            for name, found in parts.items()
            if name == "total" or k < len(self.counts_)
        }

    def evaluate(self, truth: Any, k: int = 100) -> Evaluation:
        """Compare with the true counts, before bounding. **Not private**: for experiments.

        Parameters
        ----------
        truth : mapping or pandas Series
            True number of users of each item.
        k : int
            How many of the most common items are compared.
        """
        check_is_fitted(self)
        names, exact = truth_of(truth)
        return evaluate(self._estimates, self.domain_.columns(names), exact, k)

    def to_frame(self, k: int = 100, *, candidates: Sequence[Any] | None = None) -> Any:
        """Return :meth:`top` as a pandas table."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas; or use top.") from None
        names = [item.name for item in fields(Count)]
        return pd.DataFrame(self.top(k, candidates=candidates), columns=names)

    def to_csv(
        self,
        path: str | os.PathLike[str],
        k: int = 100,
        *,
        candidates: Sequence[Any] | None = None,
    ) -> None:
        """Write :meth:`top` to a CSV file."""
        write_csv(path, self.top(k, candidates=candidates), [item.name for item in fields(Count)])

    def report(
        self,
        path: str | os.PathLike[str],
        k: int = 100,
        *,
        candidates: Sequence[Any] | None = None,
        title: str = "Private counts",
        command: str | None = None,
    ) -> Path:
        """Write a page with picture, table, privacy statement and cost; return its path."""
        records = self.top(k, candidates=candidates)
        facts = {
            "users": f"{self.n_users_:,}",
            "domain": self.domain_.description,
            "items per user, at most": f"{self.max_items_:,}",
            **{
                f"bytes per user, round of {s}": f"{b:,}" for s, b in self.bytes_per_client_.items()
            },
            "standard error of a count": f"{float(np.median(self.std_err_)):,.1f}",
            **{
                f"pairs of user and item, {name}": f"{c.count:,.0f} ({c.low:,.0f} – {c.high:,.0f})"
                for name, c in self.total(k).items()
            },
        }
        return report.write_report(
            path,
            records,
            title=title,
            statement=self.statement(),
            caption=f"{min(len(records), report.BARS)} largest counts, n = {self.n_users_:,}, "
            f"ε = {stated(self.epsilon_, 3)}, δ = {stated(self.delta, 3)}, "
            f"{self.domain_.description}",
            facts=facts,
            command=command or repr(self),
            not_private=self.not_private_,
            trusted=self.trusted_,
        )

    def summary(self, k: int = 100, *, candidates: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return everything that is released, as JSON values."""
        return {
            "epsilon": self.epsilon_,
            "delta": self.delta,
            "statement": self.statement(),
            "not_private": self.not_private_,
            "trusted": self.trusted_,
            "n_users": self.n_users_,
            "domain": self.domain_.description,
            "max_items": self.max_items_,
            "bytes_per_client": self.bytes_per_client_,
            "standard_error": float(np.median(self.std_err_)),
            "counts": [asdict(record) for record in self.top(k, candidates=candidates)],
            "totals": [asdict(record) for record in self.total(k).values()],
        }

    def statement(self) -> str:
        """Return the promise of privacy in words."""
        check_is_fitted(self)
        observer = self.aggregates_["counts"].privacy.describe_observer()
        return (
            f"All results on this page together are ({stated(self.epsilon_)}, "
            f"{stated(self.delta, 3)})-differentially private against {observer}: they would "
            "be about as likely if any one user's rows were replaced by nothing. Public are the "
            "number of users and the domain. "
            f"Counts are of users after bounding: each user contributes at most {self.max_items_} "
            "items, drawn at random where it holds more."
        )

    @property
    def _estimates(self) -> Estimates:
        m = _sketch_length(self.aggregates_["counts"])
        return Estimates(self.counts_, self.std_err_, m, self.n_users_)

    def _names(self, columns: NDArray[np.int64], candidates: Sequence[Any] | None) -> list[str]:
        known = {} if candidates is None else self._named_cells(candidates)
        named = getattr(self, "names_", {})
        plain = self.domain_.names(columns.tolist())
        return [
            " or ".join(known.get(column, ())) or named.get(column) or name
            for column, name in zip(columns.tolist(), plain)
        ]

    def _named_cells(self, candidates: Sequence[Any]) -> dict[int, list[str]]:
        if not isinstance(self.domain_, HashedItems):
            raise ValueError("candidates name the cells of a hashed domain; this one has names.")
        names = list(dict.fromkeys(_texts(candidates)))
        known: dict[int, list[str]] = {}
        for column, name in zip(self.domain_.columns(names).tolist(), names):
            known.setdefault(column, []).append(name)
        return known

    def __getstate__(self) -> Any:
        state = dict(super().__getstate__())
        state.pop("bounded_counts_", None)  # it depends on the users' data
        return state


class _Run:
    """One fit: its rounds in order, and what they give."""

    def __init__(
        self,
        counts: PrivateCounts,
        domain: Domain,
        codes: ItemCodes | None,
        rows: Contributions,
        rng: Randomness,
        *,
        weighted: bool,
    ) -> None:
        self.counts, self.domain, self.codes = counts, domain, codes
        self.rows, self.rng, self.weighted = rows, rng, weighted
        self.sizes = rows.sizes()
        self.n = self._n_users()
        self.account = Account(counts.epsilon, counts.delta)
        self.z = counts._multipliers(codes is not None)
        self.last = next(reversed(self.z))
        self.base = counts._base()
        self.seed = resolve_seed(counts.random_state)
        self.ledger = open_ledger(counts.ledger, counts.delta)
        self.aggregates: dict[str, Aggregate] = {}

    def _n_users(self) -> int:
        n = len(self.sizes)
        if n == 0:
            raise ValueError("the table has no rows; there is nobody to count.")
        given = self.counts.n_users
        if given is not None and n > given:
            raise ValueError(
                f"n_users={given}, but the table has more users; give a public number that is "
                "large enough for every table that could have come."
            )
        n = n if given is None else given
        if n < 2:
            raise ValueError("one user cannot hide among others; count a table of several users.")
        return n

    def run(self) -> dict[str, Any]:
        """Run all rounds and return the fitted attributes."""
        self._rehearse()
        limit = min(self.counts.max_items or self._chosen_limit(), self.domain.size)
        fitted = self._count(limit)
        if self.codes is not None:
            m = _sketch_length(self.aggregates["counts"])
            estimates = Estimates(fitted["counts_"], fitted["std_err_"], m, self.n)
            fitted["names_"] = self._name(estimates, self.codes)
        rounds = self.aggregates.items()
        return {
            **fitted,
            "domain_": self.domain,
            "n_users_": self.n,
            "max_items_": limit,
            "aggregates_": dict(self.aggregates),
            "epsilon_": self.account.total(),
            "zcdp_epsilon_": self.account.zcdp_total(),
            "bytes_per_client_": {name: found.bytes_per_client for name, found in rounds},
            "not_private_": any(found.not_private for _, found in rounds),
        }

    def _rehearse(self) -> None:
        """Raise for rounds that could not be run, before the first of them is charged."""
        stage = self._stages(1)[-1]
        check_prior(stage, self.counts.prior, self.domain.size)
        if len(self.z) > 1:
            privacy_of(stage.spec, stage.dim, self.n)
        if self.codes is not None and self.counts.n_bits is not None:
            for cells in (1, 128):
                ballot = Ballot(tuple(range(cells)), 1, self.codes)
                names = _stage_of(ballot, self.base, self.z["names"], self.n)
                privacy_of(names.spec, names.dim, self.n)

    def _run(self, stage: Stage, X: Any) -> Aggregate:
        if stage.name == self.last:
            stage = self.account.last(stage, self.n)
        self.counts._say(f"round of {stage.name}: {self.n:,} users, vectors of {stage.dim:,}")
        number = _STAGES.index(stage.name)
        simulated = self.counts.simulation_seed
        aggregate = stage.spec.run(
            X,
            ledger=self.ledger,
            random_state=(self.seed + number) % 2**32,
            # rounds of one simulation must not share their noise
            simulation_seed=None if simulated is None else (simulated << 2) + number + 1,
        )
        self.account.add(aggregate.privacy)
        self.aggregates[stage.name] = aggregate
        return aggregate

    def _chosen_limit(self) -> int:
        found = self._run(self._stages(1)[0], size_rows(self.sizes, self.n))
        return self.counts.limit(found)

    def _count(self, limit: int) -> dict[str, Any]:
        held = self.rows.limited(limit, self.rng)
        d, largest = self.domain.size, self.counts.max_weight
        if self.weighted:
            assert largest is not None
            X = presence_and_values(held, self.n, d, largest)
        else:
            X = presence(held, self.n, d)
        found = self._run(self._stages(limit)[-1], X)
        self.counts._say("decoding")
        solver = found.unbiased
        values = self.n * solver.coef_
        std_err = self.n * np.broadcast_to(solver.std_err_, values.shape).astype(np.float64)
        fitted: dict[str, Any] = {
            "counts_": values[:d],
            "std_err_": std_err[:d],
            "trusted_": bool(getattr(solver, "trusted_", True)),
        }
        if self.weighted and largest is not None:
            m = _sketch_length(found)
            fitted["sums_"] = Estimates(largest * values[d:], largest * std_err[d:], m, self.n)
        if self.counts.diagnostics:
            fitted["bounded_counts_"] = np.bincount(held.columns, minlength=d)
        return fitted

    def _stages(self, limit: int) -> list[Stage]:
        return self.counts._until_counts(
            self.base, self.z, self.domain, self.n, limit, self.weighted
        )

    def _name(self, estimates: Estimates, codes: ItemCodes) -> dict[int, str]:
        ballot = _ballot(estimates, codes, self.z["names"])
        if not ballot.cells:
            return {}
        held = self.rows.within(np.array(ballot.cells), ballot.votes, self.rng)
        stage = _stage_of(ballot, self.base, self.z["names"], self.n)
        found = self._run(stage, VoteRows(held, self.n, len(ballot.cells)))
        self.counts._say("spelling names")
        return ballot.names(found.sketch, self.domain)


def _ballot(estimates: Estimates, codes: ItemCodes, noise_multiplier: float) -> Ballot:
    """Return the ballot on the cells that stand out."""
    heavy = estimates.discoveries()
    heavy = heavy[np.argsort(-estimates.values[heavy], kind="stable")]
    if not len(heavy):
        return Ballot((), 1, codes)
    return Ballot.of(heavy, estimates.values[heavy], estimates.n_users, noise_multiplier, codes)


def _stage_of(ballot: Ballot, base: RoundSpec, z: float, n: int) -> Stage:
    return vote_stage(base, z, n, ballot.votes, ballot.codes.n_bits, len(ballot.cells))


def _sketch_length(aggregate: Aggregate) -> int | None:
    """Return the length of the sketch; None where nothing was sketched."""
    m, d = aggregate.operator.shape
    return m if m < d else None


def _held_by_one(domain: Domain, items: Sequence[Any], codes: ItemCodes | None = None) -> Held:
    """Return what a user with these items holds of the domain, one item per column."""
    names = _texts(items)
    columns, first = np.unique(domain.columns(names), return_index=True)
    inside = columns >= 0
    columns, first = columns[inside], first[inside]
    coded = None if codes is None else codes.encode([names[k] for k in first.tolist()])
    return Held(np.array([0, len(columns)]), columns, None, coded)


def _clipped(found: tuple[float, float, float], most: float) -> tuple[float, float, float]:
    """Return a number and the ends of its interval within 0 and ``most``."""
    value, low, high = (min(max(each, 0.0), most) for each in found)
    return value, low, high


def _texts(items: Sequence[Any]) -> list[str]:
    """Return items as the texts that they are counted as, without those that are missing."""
    if isinstance(items, str):
        raise ValueError(f"{items!r} must be a list of items, such as [{items!r}].")
    return [text for text in (text_of(item, "the list of items") for item in items) if text]


def _bytes_of(stage: Stage, n: int) -> int:
    """Return the length of a message of a round of n users."""
    return -(-stage.spec.config(stage.dim, n).mechanism.bits_per_client // 8)


def _codes_of_open(codes: ItemCodes | None) -> ItemCodes:
    if codes is None:
        raise ValueError("names are spelt out in open domains only: PrivateCounts(domain='open').")
    return codes
