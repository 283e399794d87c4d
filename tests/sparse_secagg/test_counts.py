"""Private counts: what a table gives, what it costs, and what must not depend on the data."""

import csv
import gzip
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone

from solvers.priors import Scores
from sparse_secagg import PrivacyWarning, PrivateCounts
from sparse_secagg.accounting import Ledger, rdp_to_dp
from sparse_secagg.counting.contributions import Contributions, presence
from sparse_secagg.counting.domains import HashedItems, ListedItems, make_domain
from sparse_secagg.counting.names import Ballot, ItemCodes
from sparse_secagg.counting.report import draw
from sparse_secagg.counting.results import Count
from sparse_secagg.counting.sizes import EDGES, chosen_limit, size_rows
from sparse_secagg.counting.tables import read_batches
from sparse_secagg.mechanisms.randomness import PrivateRandomness, SimulationRandomness
from sparse_secagg.privacy.curves import DEFAULT_ORDERS
from sparse_secagg.round.parts import parts_of

pytestmark = pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")


def zipf_table(n, d, draws, seed=0):
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, d + 1)
    items = rng.choice(d, size=(n, draws), p=p / p.sum())
    return np.repeat(np.arange(n), draws), np.array([f"i{k}" for k in items.ravel()])


def exact_counts(users, items):
    return pd.DataFrame({"u": users, "i": items}).drop_duplicates().groupby("i").size()


# --- counts ---------------------------------------------------------------------------------------


def test_counts_are_of_users_not_rows_and_intervals_hold_them():
    users = [u for u in range(1000) for _ in range(3)]
    items = ["a", "a", "b"] * 600 + ["a", "a", "c"] * 400
    counts = PrivateCounts(domain=["a", "b", "c", "d"], max_items=2, epsilon=5.0, simulation_seed=1)
    found = {r.item: r for r in counts.fit(users, items).top(4)}
    truth = {"a": 1000, "b": 600, "c": 400, "d": 0}
    for item, exact in truth.items():
        # six standard errors: missed once in 10^9
        assert abs(counts.counts_["abcd".index(item)] - exact) < 6 * counts.std_err_[0]
        assert found[item].low <= found[item].count <= found[item].high
        assert found[item].significant == (exact > 0)
    assert [r.item for r in counts.top(3)] == ["a", "b", "c"]


def test_counts_of_a_short_list_are_unbiased():
    users, items = np.arange(12_000), ["a"] * 8000 + ["b"] * 4000
    errors = []
    for seed in range(3):
        counts = PrivateCounts(domain=["a", "b", "c"], max_items=1, simulation_seed=seed)
        counts.fit(users, items)
        errors.append((counts.counts_ - [8000, 4000, 0]) / counts.std_err_)
    # five deviations of the mean: one in 10^6; conditional rounding would make it -6 for "a"
    assert (np.abs(np.mean(errors, axis=0)) * np.sqrt(3) < 5).all()


def test_scattered_rows_of_a_user_are_one_contribution():
    users = [u for _ in range(4) for u in range(500)]
    items = ["a"] * 500 + ["b"] * 500 + ["a"] * 500 + ["c"] * 500
    with Contributions(ListedItems(("a", "b", "c")), PrivateRandomness()) as rows:
        rows.read(read_batches(users, items, rows=137))
        X = presence(rows.limited(3, PrivateRandomness()), 500, 3)
        assert X.shape == (500, 3)
        assert X.sum(axis=0).tolist() == [500, 500, 500]
        limited = presence(rows.limited(1, SimulationRandomness(0)), 500, 3)
    assert (limited.sum(axis=1) == 1).all()
    # each of three items is the one kept with probability 1/3: six deviations of 10.5
    assert (np.abs(limited.sum(axis=0) - 500 / 3) < 63).all()


def test_no_vector_is_longer_than_its_clip_and_clipping_never_acts():
    users, items = zipf_table(300, 50, 30)
    counts = PrivateCounts(domain=[f"i{k}" for k in range(50)], max_items=4, simulation_seed=0)
    counts.fit(users, items)
    config = counts.aggregates_["counts"].config
    assert config.clip_norm == pytest.approx(2.0)
    assert counts.max_items_ == 4


def test_sketched_counts_cover_and_find():
    users, items = zipf_table(4000, 3000, 10)
    counts = PrivateCounts(
        domain=2**14, epsilon=4.0, max_bytes=4000, diagnostics=True, simulation_seed=3,
        random_state=3,
    ).fit(users, items)  # fmt: skip
    assert 3900 < sum(counts.bytes_per_client_.values()) <= 4000
    assert counts.epsilon_ <= 4.0
    truth = counts.bounded_counts_
    covered = np.mean(np.abs(counts.counts_ - truth) <= 1.959964 * counts.std_err_)
    assert 0.93 < covered < 0.97
    evaluation = counts.evaluate(exact_counts(users, items), k=20)
    assert evaluation.recall >= 0.9
    assert evaluation.not_private
    total = counts.total()["total"]
    half = (total.high - total.low) / 2
    assert abs(total.count - truth.sum()) < 3 * half


def test_totals_stay_within_what_the_users_can_hold():
    """At so small an ε noise alone would reach far beyond, on both sides."""
    items = [f"item {k}" for k in range(200)]
    counts = PrivateCounts(domain=items, epsilon=0.05, max_items=2, simulation_seed=0)
    total = counts.fit(range(100), items[:100]).total()["total"]
    assert 1.96 * np.sqrt(200) * counts.std_err_.max() > 400
    assert 0 <= total.low <= total.count <= total.high <= 200


def test_candidates_name_cells_afterwards_for_free():
    users, items = [f"u{k}" for k in range(900)], ["tea"] * 900
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=2**10, max_items=1, epsilon=4.0, ledger=ledger).fit(users, items)
    spent = ledger.epsilon_server
    assert counts.top(1)[0].item.startswith("cell ")
    assert counts.top(1, candidates=["tea", "coffee"])[0].item == "tea"
    assert counts.estimate(["tea"])[0].count > 700
    assert ledger.epsilon_server == spent


def test_everything_else_is_covered_though_the_largest_were_taken_away():
    d, k, covered, draws = 300, 100, [], 200
    truth = np.r_[np.full(20, 50.0), np.full(d - 20, 5.0)]
    counts = PrivateCounts(domain=range(d), max_items=1).fit([1, 2], [1, 2])
    counts.n_users_ = 10**6
    rng = np.random.default_rng(0)
    for _ in range(draws):
        counts.counts_ = truth + counts.std_err_ * rng.standard_normal(d)
        rest = np.argsort(-counts.counts_)[k:]
        record = counts.total(k)["everything else"]
        covered.append(record.low <= truth[rest].sum() <= record.high)
    assert stats.binom.sf(draws - sum(covered) - 1, draws, 0.05) > 1e-6


# --- what it costs --------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_sum_of_the_curves_and_never_above_the_promise():
    users, items = zipf_table(400, 40, 5)
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=[f"i{k}" for k in range(40)], epsilon=1.5, ledger=ledger)
    counts.fit(users, items)
    assert set(counts.aggregates_) == {"sizes", "counts"}
    rdp = sum(a.privacy.rdp(DEFAULT_ORDERS) for a in counts.aggregates_.values())
    assert counts.epsilon_ == pytest.approx(rdp_to_dp(DEFAULT_ORDERS, rdp, 1e-6))
    assert ledger.epsilon_server == pytest.approx(counts.epsilon_)
    assert 1.49 < counts.epsilon_ <= 1.5
    singles = [a.privacy.epsilon() for a in counts.aggregates_.values()]
    assert max(singles) < counts.epsilon_ < sum(singles)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("max_items", [3, None])
def test_the_promise_holds_for_both_adjacencies(adjacency, max_items):
    users, items = zipf_table(200, 20, 5)
    counts = PrivateCounts(
        domain=[f"i{k}" for k in range(20)], max_items=max_items, adjacency=adjacency
    ).fit(users, items)
    assert counts.epsilon_ <= 1.0
    assert counts.epsilon_ > 0.98
    for aggregate in counts.aggregates_.values():
        assert aggregate.privacy.adjacency == adjacency


def test_every_fit_is_charged():
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=["a", "b"], max_items=1, ledger=ledger)
    counts.fit([1, 2, 3], ["a", "b", "a"])
    once = ledger.epsilon_server
    counts.fit([1, 2, 3], ["a", "b", "a"])
    assert ledger.epsilon_server > once
    assert ledger.rounds == 2


def test_a_seeded_run_is_labelled_and_reproducible():
    users, items = zipf_table(100, 10, 3)
    domain = [f"i{k}" for k in range(10)]
    seeded = PrivateCounts(domain=domain, simulation_seed=5, random_state=1)
    with pytest.warns(PrivacyWarning, match="not private") as caught:
        first = seeded.fit(users, items).counts_
    assert len([w for w in caught if "simulation_seed" in str(w.message)]) == 1
    assert seeded.not_private_
    assert (clone(seeded).fit(users, items).counts_ == first).all()
    real = PrivateCounts(domain=domain, random_state=1).fit(users, items)
    assert not real.not_private_
    assert (
        real.counts_ != PrivateCounts(domain=domain, random_state=1).fit(users, items).counts_
    ).any()


def test_rounds_of_one_simulation_do_not_share_their_noise():
    users, items = zipf_table(300, 40, 5)
    counts = PrivateCounts(domain=[f"i{k}" for k in range(len(EDGES))], simulation_seed=5)
    counts.fit(users, items)
    sizes, found = counts.aggregates_["sizes"], counts.aggregates_["counts"]
    truth = size_rows(np.full(300, 5), 300).mean(axis=0)
    noise = [(sizes.sketch - truth)[20:], found.sketch[20:]]
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.9


# --- nothing depends on the data for free ---------------------------------------------------------


def test_without_a_domain_the_three_choices_are_named():
    with pytest.raises(ValueError, match=r"list.*2\*\*17.*'open'"):
        PrivateCounts().fit([1, 2], ["a", "b"])


def test_the_released_items_are_those_of_the_domain_whatever_the_data():
    domain = ["a", "b", "c"]
    for items in (["a", "secret"], ["b", "b"]):
        counts = PrivateCounts(domain=domain, max_items=1).fit([1, 2], items)
        assert {r.item for r in counts.top(10)} == set(domain)
        assert [r.item for r in counts.estimate(["secret", "a"])] == ["a"]


def test_a_public_number_of_users_hides_who_is_in_the_table():
    domain = ["a", "b"]
    with_one = PrivateCounts(domain=domain, max_items=1, n_users=50).fit(range(30), ["a"] * 30)
    without = PrivateCounts(domain=domain, max_items=1, n_users=50).fit(range(29), ["a"] * 29)
    assert with_one.n_users_ == without.n_users_ == 50
    assert with_one.epsilon_ == without.epsilon_
    assert (with_one.std_err_ == without.std_err_).all()
    with pytest.raises(ValueError, match="n_users=10"):
        PrivateCounts(domain=domain, n_users=10).fit(range(30), ["a"] * 30)


def test_users_without_items_of_the_domain_take_part_with_nothing():
    counts = PrivateCounts(domain=["a"], max_items=1, epsilon=8.0, simulation_seed=0)
    counts.fit(range(1000), ["a"] * 500 + [None] * 250 + ["other"] * 250)
    assert counts.n_users_ == 1000
    assert abs(counts.counts_[0] - 500) < 6 * counts.std_err_[0]


# --- the private limit ----------------------------------------------------------------------------


def test_the_limit_follows_what_users_hold():
    for size in (1, 4, 19, 200):
        histogram = np.asarray(size_rows(np.full(5000, size), 5000).sum(axis=0)).ravel()
        noisy = histogram + np.random.default_rng(size).normal(0, 20, len(EDGES))
        assert size <= chosen_limit(noisy, 20.0) <= 1.4 * size + 1


@pytest.mark.parametrize(("typical", "spread"), [(20, 1.5), (80, 1.5), (150, 1.1)])
def test_the_limit_is_near_the_best_for_what_is_common(typical, spread):
    """Users who hold much hold more of every common item than the average user."""
    rng = np.random.default_rng(0)
    n, d = 3000, 10_000
    activity = typical * rng.lognormal(0, spread, n)
    p = 1 / np.arange(1, d + 1)
    held = 1 - np.exp(-np.outer(activity, p / p.sum()))  # probability that a user holds an item
    sizes = rng.poisson(held.sum(axis=1)).clip(1)
    histogram = np.asarray(size_rows(sizes, n).sum(axis=0)).ravel()
    limits = np.array(EDGES, dtype=float)
    through = np.minimum(1, limits[:, None] / sizes)  # share of a user's items
    signal = (through @ held[:, :100]).mean(axis=1) / np.sqrt(limits)
    chosen = EDGES.index(chosen_limit(histogram, 20.0))
    assert signal[chosen] > 0.95 * signal.max()


def test_bins_that_noise_alone_fills_do_not_choose_the_limit():
    rng = np.random.default_rng(1)
    histogram = np.asarray(size_rows(np.full(1000, 2), 1000).sum(axis=0)).ravel()
    limits = [chosen_limit(histogram + rng.normal(0, 20.0, len(EDGES)), 20.0) for _ in range(500)]
    assert max(limits) <= 3


def test_the_limit_is_defined_where_noise_drowns_everything():
    assert chosen_limit(np.zeros(len(EDGES)), 20.0) in EDGES


def test_a_user_is_in_one_bin_at_most():
    sizes = np.array([0, 1, 5, 10**6])
    rows = size_rows(sizes, 6)
    assert rows.sum(axis=1).tolist() == [0, 1, 1, 1, 0, 0]


def test_choice_of_the_limit_needs_a_charge():
    users, items = zipf_table(200, 20, 5)
    counts = PrivateCounts(domain=[f"i{k}" for k in range(20)]).fit(users, items)
    assert counts.aggregates_["sizes"].privacy.epsilon() > 0.1


# --- open domains ---------------------------------------------------------------------------------


def test_items_that_nobody_listed_are_spelt_out():
    users = [u for u in range(4000) for _ in range(2)]
    items = ["grüße ☕", "héllo [/]"] * 3000 + ["a name that is too long", "héllo [/]"] * 1000
    counts = PrivateCounts(domain="open", max_items=2, epsilon=8.0, simulation_seed=1)
    counts.fit(users, items)
    names = [r.item for r in counts.top(3)]
    assert names[:2] == ["héllo [/]", "grüße ☕"]
    assert names[2] == f"cell {counts.domain_.columns(['a name that is too long'])[0]}"
    assert counts.epsilon_ <= 8.0
    assert set(counts.bytes_per_client_) == {"counts", "names"}


def test_codes_hold_what_they_can_and_correct_doubtful_bits():
    codes, cells = ItemCodes(16), HashedItems(2**20)
    assert not codes.encode(["", "seventeen bytes!!", "nul\0", "\ud800"]).any()
    votes = 2.0 * np.unpackbits(codes.encode(["sixteen bytes !!"])[0]) - 1
    cell = int(cells.columns(["sixteen bytes !!"])[0])
    wrong = votes.copy()
    wrong[[3, 40, 130]] *= -0.05
    assert codes.decode(votes, cell, cells) == "sixteen bytes !!"
    assert codes.decode(wrong, cell, cells) == "sixteen bytes !!"
    assert codes.decode(votes, cell + 1, cells) is None
    rng = np.random.default_rng(0)
    for _ in range(20):  # 2¹² trials against 36 bits: one in 10^6 passes
        assert codes.decode(rng.standard_normal(codes.n_bits), cell, cells) is None


# --- sums and means -------------------------------------------------------------------------------


def test_sums_and_means_of_clipped_numbers():
    n = 3000
    table = {
        "u": np.arange(n),
        "i": ["a"] * 2000 + ["b"] * 1000,
        "w": [2.0] * 2000 + [-50.0] * 1000,
    }
    counts = PrivateCounts(
        domain=["a", "b", "c"],
        max_items=1,
        max_weight=4.0,
        epsilon=8.0,
        simulation_seed=0,
        random_state=0,
    ).fit(table, user="u", item="i", weight="w")
    found = {r.item: r for r in counts.sums(3)}
    assert abs(found["a"].sum - 4000) < 6 * counts.sums_.std_err[0]
    assert abs(found["b"].sum + 4000) < 6 * counts.sums_.std_err[1]  # clipped at -4 each
    assert found["a"].sum_low < found["a"].sum < found["a"].sum_high
    assert found["a"].mean == pytest.approx(2.0, abs=0.1)
    # nobody: no mean, except where the noise alone looks like users
    assert np.isnan(found["c"].mean) or found["c"].count > 1.9 * counts.std_err_[2]
    assert counts.aggregates_["counts"].config.clip_norm == pytest.approx(np.sqrt(2))
    with pytest.raises(ValueError, match="max_weight"):
        PrivateCounts(domain=["a"]).fit(table, user="u", item="i", weight="w")
    with pytest.raises(ValueError, match="weight"):
        PrivateCounts(domain=["a"], max_items=1).fit([1, 2], ["a", "a"]).sums()


# --- tables ---------------------------------------------------------------------------------------


@pytest.fixture
def columns():
    return {"user": ["u1", "u2", "u1", "u3"], "item": ["a", "b", "c", None], "w": [1.0, 2, 3, 4]}


def contributions_of(table, **names):
    domain = ListedItems(("a", "b", "c"))
    with Contributions(domain, SimulationRandomness(0)) as rows:
        rows.read(read_batches(table, user="user", item="item", **names))
        X = presence(rows.limited(3, SimulationRandomness(0)), 3, 3)
        return sorted(map(tuple, X.toarray().astype(int).tolist()))


def test_every_kind_of_table_says_the_same(columns, tmp_path):
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    arrow = pa.table(columns)
    tables = [
        columns, frame, pl.DataFrame(columns), arrow, arrow.to_reader(), tmp_path / "t.csv",
        str(tmp_path / "t.parquet"),
    ]  # fmt: skip
    for table in tables:
        assert contributions_of(table) == [(0, 0, 0), (0, 1, 0), (1, 0, 1)]


def test_a_column_of_texts_and_holes_says_the_same_as_one_by_one():
    values = ["b", "", "a", "b", "", "☕"]
    fast = next(read_batches(["u"] * 6, values)).items
    slow = next(read_batches(["u"] * 6, [*values[:1], None, *values[2:]])).items
    assert fast.values == slow.values == ["b", "a", "☕"]
    assert fast.codes.tolist() == slow.codes.tolist() == [0, -1, 1, 0, -1, 2]
    with pytest.raises(ValueError, match="mixes texts and whole numbers"):
        list(read_batches(["u"] * 4, ["a", "b", 1, 2], rows=2))


def test_users_may_be_numbers_of_any_kind():
    for users in ([1, 2, 10**400], np.array([1, 2, 3], np.uint16), pd.Series([1.0, 2.0, 3.0])):
        counts = PrivateCounts(domain=["7", "8"], max_items=1).fit(users, [7, 8, 7])
        assert counts.n_users_ == 3


def test_long_and_strange_names_are_counted_like_others(tmp_path):
    strange = ["[/]", "new\nline", "🦄", "x" * 10_000, "<script>alert(1)</script>", '"quoted, "']
    users = [u for u in range(2000) for _ in strange]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([["user", "item"], *zip(users, strange * 2000)])
    counts = PrivateCounts(domain=strange, max_items=6, epsilon=8.0, simulation_seed=0)
    counts.fit(tmp_path / "t.csv", user="user", item="item")
    assert {r.item for r in counts.top(6) if r.significant} == set(strange)
    counts.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        assert {row["item"] for row in csv.DictReader(file)} == set(strange)
    page = counts.report(tmp_path / "page.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Not private" in page
    assert (tmp_path / "page.html").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"user": [1, 2]}, "no column 'item'"),
        ({"user": [1, None], "item": ["a", "a"]}, "without a user"),
        ({"user": [], "item": []}, "no rows"),
        ({"user": [1, 1], "item": ["a", "a"]}, "one user"),
        ({"user": [1, 2], "item": ["a", 3]}, "mixes texts and whole numbers"),
        ({"user": [1, 2], "item": [1.5, 2.5]}, "no text and no whole number"),
        ({"user": [1, 2], "item": [b"a", b"b"]}, "bytes"),
        ({"user": [1, 2], "item": [1.0, float("inf")]}, "several whole numbers"),
        ({"user": [2.0**53, 2.0**53 + 2], "item": [1, 2]}, "several whole numbers"),
        ({"user": [1, 2], "item": np.array(["2020", "2021"], "datetime64[ns]")}, "datetime64"),
        ({"user": {1: 2, 3: 4}, "item": {1: 2, 3: 4}}, "columns of values"),
        ({"user": {1, 2}, "item": {"a", "b"}}, "columns of values"),
        (pl.DataFrame({"user": [1, 2], "item": ["a", "b"]}).lazy(), "LazyFrame cannot be read"),
        ({"user": [1, 2, 3], "item": ["a"]}, "same number of rows"),
        (42, "cannot be read"),
        ("/no/such/file.csv", "not a file; give the path of a CSV or Parquet file"),
        (
            pd.DataFrame([[1, "a", "b"], [2, "a", "b"]], columns=["user", "item", "item"]),
            "two columns named 'item'",
        ),
        (pd.DataFrame({0: [1, 2], "item": ["a", "b"]}), "no column 'user'; its columns are 0, 'i"),
    ],
)
def test_bad_tables_are_refused_and_cost_nothing(table, message):
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=["a", "b"], ledger=ledger)
    with pytest.raises(ValueError, match=message):
        counts.fit(table, user="user", item="item")
    assert ledger.rounds == 0
    assert not hasattr(counts, "counts_")


def test_one_column_cannot_be_users_and_items():
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=["a", "b"], ledger=ledger)
    with pytest.raises(ValueError, match="user and item are the same column, 'item'"):
        counts.fit({"user": [1, 2], "item": ["a", "b"]}, user="item", item="item")
    assert ledger.rounds == 0


@pytest.mark.parametrize("named", [{"weight": "w"}, {"user": "u"}, {"item": "i"}])
def test_names_of_columns_need_a_table(named):
    """Weights that were asked for and never read would be sums of zero, dearly paid for."""
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=["a", "b"], max_weight=1.0, ledger=ledger)
    with pytest.raises(ValueError, match=f"{next(iter(named))}=.* names a column of a table"):
        counts.fit([1, 2], ["a", "b"], **named)
    assert ledger.rounds == 0


@pytest.mark.parametrize(
    "users",
    [
        pd.DataFrame({"u": [1, 2], "v": [1, 2]}), pl.DataFrame({"u": [1, 2]}),
        pa.table({"u": [1, 2]}), np.array([[1], [2]]), np.array(5), (k for k in (1, 2)),
    ],
)  # fmt: skip
def test_what_has_several_columns_or_none_is_no_column(users):
    with pytest.raises(ValueError, match="users and items must be columns of values"):
        PrivateCounts(domain=["a", "b"]).fit(users, ["a", "b"])


def test_what_is_masked_is_missing():
    items = np.ma.masked_array([7, 7, 8], mask=[False, True, False])
    batch = next(read_batches(["u", "v", "w"], items))
    assert (batch.items.values, batch.items.codes.tolist()) == (["7", "8"], [0, -1, 1])


def test_short_floats_stand_for_several_numbers_sooner():
    users = np.array([2.0**24, 2.0**24 + 1], dtype=np.float32)
    with pytest.raises(ValueError, match=r"float of 2\*\*24 or more"):
        list(read_batches(users, ["a", "b"]))


def test_columns_may_be_named_by_numbers():
    frame = pd.DataFrame([["u", "a"], ["v", "b"]])
    batch = next(read_batches(frame, user=0, item=1))
    assert (batch.users.values, batch.items.values) == (["u", "v"], ["a", "b"])


def test_bad_csv_files_are_refused(tmp_path):
    for text, message in [
        (b"", "empty"),
        (b"user,item\n1,a,2\n", "line 2: 3 fields"),
        (b"user,item\n1,\xff\n", "UTF-8"),
        (gzip.compress(b"user,item\n1,a\n2,a\n"), "not compressed, or as Parquet"),
        ("user,item\n1,a\n".encode("utf-16"), "UTF-8, around line 1: .*save the table as one"),
        (b"user;item\n1;a\n", "separated by commas"),
        (b"user\titem\n1\ta\n", "separated by commas"),
        (b"user,item,item\n1,a,b\n", "two columns named 'item'"),
        (b'user,item\n1,"a\n2,a\n3,a\n', "unexpected end of data"),
    ]:  # fmt: skip
        (tmp_path / "t.csv").write_bytes(text)
        with pytest.raises(ValueError, match=message):
            PrivateCounts(domain=["a"]).fit(tmp_path / "t.csv", user="user", item="item")


def test_empty_lines_before_the_header_are_passed_over(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf\r\nuser,item\r\n1,a\r\n2,b\r\n")
    batch = next(read_batches(tmp_path / "t.csv", user="user", item="item"))
    assert (batch.users.values, batch.items.values) == (["1", "2"], ["a", "b"])


def test_a_damaged_parquet_file_is_refused_by_name(tmp_path):
    pq.write_table(pa.table({"user": [1, 2] * 50, "item": ["a", "b"] * 50}), tmp_path / "t.parquet")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[10:60] = bytes(50)
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read"):
        PrivateCounts(domain=["a"]).fit(tmp_path / "t.parquet", user="user", item="item")


def test_weights_that_are_no_numbers_are_refused():
    for weights in (
        [1.0, float("nan")],
        [1.0, float("inf")],
        [1.0, None],
        ["1", "x"],
        [1, 10**400],
    ):
        with pytest.raises(ValueError, match="column 'w' of weights.*drop the"):
            list(
                read_batches(
                    {"u": [1, 2], "i": [1, 2], "w": weights}, user="u", item="i", weight="w"
                )
            )


def test_texts_that_no_file_can_hold_are_written_escaped(tmp_path):
    """A lone surrogate, as JSON may hold, must not break the files of a fit that was paid for."""
    broken = "half \ud83c"
    counts = PrivateCounts(domain=[broken, "tea"], max_items=1, epsilon=4.0)
    counts.fit(list(range(500)), [broken] * 500)
    counts.to_csv(tmp_path / "out.csv")
    page = counts.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, (tmp_path / "out.csv").read_text(encoding="utf-8")):
        assert r"half \ud83c" in text


def test_the_caption_counts_the_bars_of_the_picture(tmp_path):
    counts = PrivateCounts(domain=[f"item {k}" for k in range(60)], max_items=1).fit([1, 2], [1, 2])
    assert "40 largest counts, n = 2" in counts.report(tmp_path / "many.html").read_text()
    assert "3 largest counts, n = 2" in counts.report(tmp_path / "few.html", 3).read_text()


def test_letters_that_the_font_of_the_picture_lacks_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw([Count("🍵", 3.0, 2.0, 4.0, True)], "tea")


def test_one_user_with_very_many_items_is_bounded():
    users = [0] * 200_000 + list(range(1, 100))
    items = [str(k) for k in range(200_000)] + ["5"] * 99
    with Contributions(HashedItems(2**20), PrivateRandomness()) as rows:
        rows.read(read_batches(users, items))
        assert rows.limited(7, PrivateRandomness()).sizes.max() == 7


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ([], "at least one"),
        (["a", "a"], "twice"),
        (1, "from 2"),
        (0.5, "choices"),
        (b"abc", "choices"),
        ("nofile", "no file"),
        (["a", None], "empty"),
        ([1.5], "no whole number"),
        (pd.DataFrame({"item": ["a", "b"]}), "a table; give one of its columns"),
    ],
)
def test_bad_domains_are_refused(domain, message):
    with pytest.raises(ValueError, match=message):
        make_domain(domain)


def test_a_domain_may_be_a_file(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbftea\r\n\r\ncoffee\ntea\n")
    assert make_domain(tmp_path / "words.txt").names([0, 1]) == ["tea", "coffee"]
    assert make_domain("2**12").size == 4096
    (tmp_path / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match="words.txt.*UTF-8"):
        make_domain(tmp_path / "words.txt")


def test_items_are_the_same_texts_wherever_they_are_named():
    """A column with holes is one of floats in pandas: 7.0 there is the item 7 everywhere."""
    items = pd.Series([7.0, 8.0, None, 7.0])
    counts = PrivateCounts(domain=items.dropna().unique(), max_items=1, epsilon=50.0)
    counts.fit(range(4), items)
    assert counts.domain_.names([0, 1]) == ["7", "8"]
    assert [round(r.count) for r in counts.estimate([7.0, np.int64(8), np.str_("7"), None])] == [
        2, 1, 2,
    ]  # fmt: skip
    assert counts.evaluate({7.0: 2, 8.0: 1}).recall == 1.0
    assert counts.vector([8.0, None]).tolist() == [0.0, 1.0]


def test_numbers_that_make_no_sense_afterwards_are_refused():
    counts = PrivateCounts(domain=["a", "b"], max_items=1).fit([1, 2], ["a", "b"])
    for truth in ({}, {"a": -1}, {"a": float("nan")}):
        with pytest.raises(ValueError, match="truth must hold items"):
            counts.evaluate(truth)
    for method in (counts.top, counts.total, counts.summary):
        with pytest.raises(ValueError, match=r"k=1\.5"):
            method(1.5)


def test_one_item_where_several_belong_is_not_taken_for_its_letters():
    counts = PrivateCounts(domain=2**4, max_items=1).fit([1, 2], ["tea", "tea"])
    for call in (counts.estimate, counts.vector, lambda items: counts.top(candidates=items)):
        with pytest.raises(ValueError, match=r"'tea' must be a list of items"):
            call("tea")


def test_the_columns_of_a_set_are_the_same_in_every_process():
    assert make_domain({"b", "c", "a", 10}).names(range(4)) == ["10", "a", "b", "c"]


def test_numbers_of_cells_may_be_written_in_any_way():
    for text in ("10000", "1e4", "10_000", "1E+4"):
        assert make_domain(text).size == 10_000


# --- an estimator ---------------------------------------------------------------------------------


def test_clone_parameters_and_pickling():
    counts = PrivateCounts(domain=["a", "b"], epsilon=2.0, max_items=1, diagnostics=True)
    assert clone(counts).get_params() == counts.get_params()
    assert counts.get_params()["delta"] == 1e-6
    assert counts.set_params(epsilon=3.0).epsilon == 3.0
    with pytest.raises(TypeError, match="clip_norm"):
        PrivateCounts(clip_norm=2.0)
    counts.fit([1, 2, 3], ["a", "b", "a"])
    again = pickle.loads(pickle.dumps(counts))
    assert again.top(2) == counts.top(2)
    assert not hasattr(again, "bounded_counts_")


def test_parameters_are_checked_before_anything_is_charged():
    for bad in ({"epsilon": -1.0}, {"max_items": 0}, {"max_bytes": 0}, {"delta": 2.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            PrivateCounts(domain=["a", "b"], **bad).fit([1, 2], ["a", "b"])


@pytest.mark.parametrize(
    ("prior", "message"),
    [(Scores(np.arange(7.0)), "7 entries"), (Scores(np.arange(6000.0)), "6000 entries")],
)
@pytest.mark.parametrize("weight", [None, "w"])
def test_a_prior_of_another_length_is_refused_and_costs_nothing(prior, message, weight):
    ledger = Ledger(1e-6)
    counts = PrivateCounts(
        domain=range(3000), prior=prior, max_bytes=1000, max_weight=1.0, ledger=ledger
    )
    table = {"u": [1, 2, 3], "i": [7, 8, 9], "w": [1.0, 1.0, 1.0]}
    with pytest.raises(ValueError, match=message):
        counts.fit(table, user="u", item="i", weight=weight)
    assert ledger.rounds == 0


def test_a_prior_has_one_entry_per_item_with_weights_too():
    users, items = zipf_table(800, 1500, 4)
    table = {"u": users, "i": items, "w": np.ones(len(users))}
    counts = PrivateCounts(
        domain=[f"i{k}" for k in range(1500)], prior=Scores(-np.arange(1500)), max_bytes=1500,
        max_items=4, max_weight=1.0, epsilon=8.0, simulation_seed=0, random_state=0,
    )  # fmt: skip
    plain = clone(counts).set_params(prior=None)
    errors = []
    for each in (counts, plain):
        each.fit(table, user="u", item="i", weight="w")
        errors.append(each.std_err_[0])
        assert each.top(1)[0].item == "i0"
    assert errors[0] < errors[1]


def test_a_prior_that_nothing_would_use_is_refused_and_costs_nothing():
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=["a", "b"], prior=Scores([1.0, 2.0]), ledger=ledger)
    with pytest.raises(ValueError, match=r"prior=Scores.*not sketched.*compression"):
        counts.fit([1, 2, 3], ["a", "b", "a"])
    assert ledger.rounds == 0


def test_bits_that_cannot_hold_the_counts_are_refused_before_the_round_of_sizes():
    ledger = Ledger(1e-6)
    counts = PrivateCounts(domain=range(2000), n_bits=9, max_bytes=300, ledger=ledger)
    with pytest.raises(ValueError, match="n_bits=9"):
        counts.fit(np.arange(3000), np.arange(3000) % 20)
    assert ledger.rounds == 0


@pytest.mark.parametrize("max_items", [None, 2])
@pytest.mark.parametrize("domain", [["a", "b", "c"], 2**12])
def test_bytes_that_no_message_keeps_to_are_refused_before_anything_is_charged(domain, max_items):
    def fitted(max_bytes):
        """Return how many bytes suffice."""
        ledger = Ledger(1e-6)
        counts = PrivateCounts(
            domain=domain, max_items=max_items, max_bytes=max_bytes, ledger=ledger
        )
        try:
            counts.fit([1, 2, 3], ["a", "b", "a"])
        except ValueError as error:
            message = str(error)
        else:
            assert sum(counts.bytes_per_client_.values()) <= max_bytes
            return max_bytes
        assert f"max_bytes={max_bytes}" in message
        assert ledger.rounds == 0
        return int(re.search(r"give at least ([\d,]+)", message)[1].replace(",", ""))

    least = fitted(1)
    assert least > 1
    assert fitted(least) == least
    assert fitted(least - 1) == least


# --- between parties ------------------------------------------------------------------------------


def test_parties_can_run_the_rounds_themselves():
    counts = PrivateCounts(domain=["a", "b", "c"], max_items=2)
    (stage,) = counts.specs(n_users=100)
    config = stage.spec.config(stage.dim, 100)
    assert config.epsilon <= 1.0 + 1e-9
    assert config.dim == 3
    vector = counts.vector(["a", "c", "zzz"])
    assert vector.tolist() == [1.0, 0.0, 1.0]
    names = [s.name for s in PrivateCounts(domain="open").specs(n_users=1000)]
    assert names == ["sizes", "counts", "names"]


@pytest.mark.parametrize("domain", ["open", 2**12, ["a", "b"]])
def test_rounds_of_parties_stay_within_the_promise_together(domain):
    stages = PrivateCounts(domain=domain).specs(n_users=300)
    configs = [stage.spec.config(stage.dim, 300) for stage in stages]
    rdp = sum(parts_of(config).privacy(300).rdp(DEFAULT_ORDERS) for config in configs)
    assert 0.98 < rdp_to_dp(DEFAULT_ORDERS, rdp, 1e-6) <= 1.0
    assert sum(config.mechanism.bits_per_client for config in configs[:2]) <= 8 * 10_000


def test_parties_spell_out_items_that_nobody_listed():
    n = 60
    held = [["tea", "héllo [/]", "tea"] if u % 4 else ["tea"] for u in range(n)]
    counts = PrivateCounts(domain="open", max_items=2, epsilon=90.0, random_state=0)
    first, _ = counts.specs(n)
    X = sp.vstack([sp.csr_array(counts.vector(items)[None]) for items in held], format="csr")
    found = first.spec.run(X, random_state=1, simulation_seed=1)
    ballot = counts.ballot(found)
    assert set(ballot.cells) == set(make_domain("open").columns(["tea", "héllo [/]"]).tolist())
    second = counts.specs(n, ballot=ballot)[1]
    votes = np.array([counts.votes(items, ballot) for items in held])
    assert votes.shape == (n, second.dim)
    assert (np.count_nonzero(votes, axis=1) <= ballot.votes * 144).all()
    spelt = second.spec.run(votes, random_state=2, simulation_seed=2)
    assert set(counts.names(spelt, ballot).values()) == {"tea", "héllo [/]"}


def test_names_need_an_open_domain_and_a_cell_that_stands_out():
    with pytest.raises(ValueError, match="open"):
        PrivateCounts(domain=["a"], max_items=1).votes(["a"], Ballot((0,), 1, ItemCodes(16)))
    with pytest.raises(ValueError, match="no cells"):
        PrivateCounts(domain="open", max_items=1).specs(9, ballot=Ballot((), 1, ItemCodes(16)))


def test_a_user_votes_on_as_many_items_as_the_ballot_allows():
    counts = PrivateCounts(domain="open", max_items=1)
    items = [f"thing {k}" for k in range(12)]
    cells = make_domain("open").columns(items)
    ballot = Ballot(tuple(cells[:8].tolist()), 3, ItemCodes(16))
    votes = counts.votes([*items, "x" * 17], ballot).reshape(8, -1)
    voted = np.flatnonzero(np.abs(votes).sum(axis=1))
    assert len(voted) == 3
    assert (np.abs(votes[voted]) == 1).all()
    assert ballot.names(votes.ravel(), make_domain("open")).items() >= {
        (int(cells[k]), items[k]) for k in voted
    }


def test_a_client_shows_how_many_items_it_holds_and_no_more():
    counts = PrivateCounts(domain=["a", "b", "c"])
    assert counts.size_vector(["a", "c", "c", "elsewhere"]).tolist() == [0, 1] + [0] * (
        len(EDGES) - 2
    )
    assert not counts.size_vector(["elsewhere"]).any()
    first = PrivateCounts(domain=["a", "b", "c"], epsilon=50.0).specs(200)[0]
    rows = np.array([counts.size_vector(["a", "b"])] * 200)
    assert counts.limit(first.spec.run(rows, simulation_seed=0)) == 2


def test_results_say_whether_the_decoder_can_be_trusted(tmp_path):
    counts = PrivateCounts(domain=["a", "b"], max_items=1).fit([1, 2, 3], ["a", "b", "a"])
    assert counts.trusted_
    assert counts.summary()["trusted"] is True
    assert "cannot be trusted" not in counts.report(tmp_path / "page.html").read_text()
    counts.trusted_ = False
    assert counts.summary()["trusted"] is False
    assert "cannot be trusted" in counts.report(tmp_path / "page.html").read_text()
    users, items = zipf_table(300, 3000, 10)
    sketched = PrivateCounts(domain=2**14, max_items=3, max_bytes=600, epsilon=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sketched.fit(users, items)
    assert sketched.trusted_ is sketched.aggregates_["counts"].unbiased.trusted_


def test_to_frame_is_the_records():
    counts = PrivateCounts(domain=["a", "b"], max_items=1).fit([1, 2, 3], ["a", "b", "a"])
    frame = counts.to_frame()
    assert list(frame.columns) == ["item", "count", "low", "high", "significant"]
    assert frame["item"].tolist() == [r.item for r in counts.top()]


def test_progress_is_told():
    said = []
    PrivateCounts(domain=["a", "b"], progress=said.append).fit([1, 2, 3], ["a", "b", "a"])
    assert said[0] == "reading the table"
    assert any("round of sizes" in line for line in said)


def test_warnings_of_real_rounds_are_not_hidden():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateCounts(domain=["a", "b"], max_items=1).fit([1, 2, 3], ["a", "b", "a"])
