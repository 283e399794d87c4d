"""An audit of private counts: two tables that differ in one user, told apart by nothing released.

A fixed list of statistics of every output file is turned into events. For each event the rates in
both worlds must be consistent with P ≤ e^ε·P' + δ, at a false-alarm rate of 1e-6 over all of them
(Clopper–Pearson bounds, Bonferroni).
"""

import html
import json
import math
import os
import re
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from sparse_secagg import PrivateCounts
from sparse_secagg.counting import report

EPSILON, DELTA, N_USERS = 1.0, 1e-6, 24
PUBLIC = ["a", "b", "c", "[/]", "unique one"]
FALSE_ALARMS = 1e-6


def tables():
    """Return the table with one user, who has the most items and unique ones, and without."""
    others = [(user, "abc"[user % 3]) for user in range(N_USERS - 1)]
    victim = [("victim", item) for item in [*PUBLIC, *[f"more {k}" for k in range(40)]]]
    return others + victim, others


def released(table, folder, domain=None, picture=False):
    """Return the statistics of all files that a run writes.

    The picture is made of the rows of the page, and takes most of the time: it can be left out.
    """
    items = [item for _, item in table]
    counts = PrivateCounts(
        domain=sorted(set(items)) if domain == "observed" else PUBLIC,
        epsilon=EPSILON,
        delta=DELTA,
        n_users=N_USERS,
    ).fit([str(user) for user, _ in table], items)
    own = folder / str(os.getpid())
    own.mkdir(exist_ok=True)
    counts.to_csv(own / "counts.csv")
    (own / "counts.json").write_text(json.dumps(counts.summary()))
    with nullcontext() if picture else mock.patch.object(report, "draw", return_value=b""):
        counts.report(own / "report.html", command="")
    found = {
        **on_the_page((own / "report.html").read_text()),
        "csv bytes": (own / "counts.csv").stat().st_size,
        "json bytes": (own / "counts.json").stat().st_size,
        "html bytes": (own / "report.html").stat().st_size,
        "rows": len(counts.top()),
        "limit": counts.max_items_,
        "message": sum(counts.bytes_per_client_.values()),
        "standard error": float(counts.std_err_[0]),
        "total": counts.total()["total"].count,
    }
    for place, record in enumerate(counts.top()):
        found[f"listed {record.item}"] = 1.0
        found[f"place of {record.item}"] = place
        found[f"count of {record.item}"] = record.count
        found[f"low of {record.item}"] = record.low
        found[f"high of {record.item}"] = record.high
        found[f"significant {record.item}"] = float(record.significant)
    return found


ROW = re.compile(r"<tr><td>(.*?)</td><td>(.*?)</td>\n<td>(.*?)</td><td>(.*?)</td>\n<td>(yes|no)")
FACT = re.compile(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>")


def on_the_page(text):
    """Return the statistics of a report: its picture, its rows, every number."""
    found = {"picture bytes": len(re.search('base64,([^"]*)', text)[1])}
    for place, (name, *numbers, significant) in enumerate(ROW.findall(text)):
        item = f"page, {html.unescape(name)}"
        found[f"{item}, place"] = place
        for column, number in zip(("users", "low", "high"), numbers):
            found[f"{item}, {column}"] = float(number.replace(",", ""))
        found[f"{item}, significant"] = float(significant == "yes")
    for name, value in FACT.findall(text):
        number = re.match(r"[\d,.]+", value)
        if number:
            found[f"page, fact {name}"] = float(number[0].rstrip(".,").replace(",", ""))
    return found


def events(runs, names, thresholds):
    """Return an array (runs, events): statistic above its threshold, or absent."""
    values = np.array([[run.get(name, -np.inf) for name in names] for run in runs])
    return np.concatenate([values > threshold for threshold in thresholds], axis=1)


def violations(worlds, pilot):
    """Return how many events are more telling than (ε, δ) allows."""
    names = sorted({name for world in [*worlds, pilot] for run in world for name in run})
    values = np.array([[run.get(name, -1.0) for name in names] for run in pilot])
    thresholds = np.quantile(values, [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], axis=0)
    thresholds = np.concatenate([thresholds - 1e-9, np.full((1, len(names)), -0.5)])
    counts = [events(world, names, thresholds).sum(axis=0) for world in worlds]
    n = [len(world) for world in worlds]
    level = FALSE_ALARMS / (4 * 2 * len(counts[0]))
    found = 0
    for first, second in ((0, 1), (1, 0)):
        for above in (True, False):
            k = counts[first] if above else n[first] - counts[first]
            other = counts[second] if above else n[second] - counts[second]
            least = np.where(k > 0, stats.beta.ppf(level, k, n[first] - k + 1), 0.0)
            most = np.where(
                other < n[second], stats.beta.isf(level, other + 1, n[second] - other), 1.0
            )
            found += int(np.sum(least > math.exp(EPSILON) * most + DELTA))
    return found


def many(table, folder, domain, picture, runs):
    """Return the statistics of many runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [released(table, folder, domain, picture) for _ in range(runs)]


def audit(runs, folder, domain=None, picture=False, processes=1):
    """Return how many events tell the two tables apart."""
    jobs = [(table, folder, domain, picture) for table in tables()]
    pilot = [run for job in jobs for run in many(*job, 10)]
    if processes == 1:
        return violations([many(*job, runs) for job in jobs], pilot)
    with ProcessPoolExecutor(processes) as pool:
        parts = [[pool.submit(many, *job, 50) for _ in range(runs // 50)] for job in jobs]
        worlds = [[run for part in world for run in part.result()] for world in parts]
    return violations(worlds, pilot)


def test_the_page_is_read_in_full(tmp_path):
    found = released(tables()[0], tmp_path, picture=True)
    for item in PUBLIC:
        assert found[f"page, {item}, users"] == pytest.approx(found[f"count of {item}"], abs=0.5)
        assert found[f"page, {item}, high"] == pytest.approx(found[f"high of {item}"], abs=0.5)
    assert found["page, fact users"] == N_USERS
    assert found["html bytes"] > found["picture bytes"] > 1000


def test_one_user_cannot_be_told_from_what_is_released(tmp_path):
    assert audit(60, tmp_path) == 0


def test_the_audit_sees_a_domain_that_is_taken_from_the_data(tmp_path):
    assert audit(80, tmp_path, "observed") > 0


@pytest.mark.slow
def test_two_thousand_runs_with_pictures_tell_no_more(tmp_path):
    assert audit(2000, tmp_path, picture=True, processes=os.cpu_count() or 1) == 0
