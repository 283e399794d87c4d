"""Tables in terminals of any width: no line is wider, no heading or number is cut."""

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.report.epsilon_table import PRESETS, as_table, epsilon_table
from experiments.report.layout import print_table
from experiments.report.tables import TextTable, sweep_tables
from experiments.report.terminal import literal
from experiments.results.table import SweepTable
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.store import Result

DECODERS = [
    "linear", "ridge", "lasso", "lasso:debias", "amp", "amp:debias", "auto", "amp:low_rank,debias",
    "amp:auto,debias", "my_package.my_module:MyLongestSolver:tolerance=1e-08,max_iter=1000",
]  # fmt: skip
WIDTHS = (60, 80, 120)


def lines(table, width):
    console = Console(width=width, file=io.StringIO())
    print_table(table, console)
    return console.file.getvalue().splitlines()


def sweep(axes, decoders=DECODERS):
    cells = [
        MeanCell(seed=seed, decoder=decoder, sparsity=s, compression=r)
        for seed in range(3)
        for decoder in decoders
        for s in axes.get("sparsity", [20])
        for r in axes.get("compression", [5.0])
    ]
    found = [
        Result(cell, "done", {
            "relative_error": (k % 7 + 1) * 1.234567 * cell.compression,
            "bits_per_parameter": 3.2, "theory_limit": 0.1, "covered": 0.95, "cosine": 0.5,
            "precision": 0.5, "recall": 0.5,
        })
        for k, cell in enumerate(cells)
    ]  # fmt: skip
    return sweep_tables(SweepTable(found, tuple(axes)), "a sweep")


TABLES = {
    "decoders side by side": sweep({"sparsity": [5, 50, 500]}),
    "a decoder on each line": sweep({"sparsity": [20]}),
    "matrices": sweep({"sparsity": [5, 50], "compression": list(map(float, range(1, 20)))}),
    "epsilon": [as_table(PRESETS["f-emnist"], epsilon_table(PRESETS["f-emnist"]))],
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_many_columns_and_long_names(name, width):
    for table in TABLES[name]:
        shown = lines(table, width)
        assert max(map(cell_len, shown)) <= width
        text = "\n".join(shown)
        for row in table.rows:
            for cell in row[max(table.left, 1) :]:
                assert len(cell) > width // 2 or cell in text, cell
            assert row[0][:12] in text  # the first of several lines of a name, at least


@pytest.mark.parametrize("width", WIDTHS)
def test_headings_are_whole_and_stand_over_their_columns(width):
    heads = ("row", *DECODERS)
    rows = tuple((f"row {k}", *(f"{k}.{j:03}" for j in range(len(DECODERS)))) for k in range(2))
    shown = lines(TextTable("", heads, rows), width)
    found = {}
    for start, line in enumerate(shown):
        if not line.startswith("─"):
            continue
        top = max((k for k in range(start) if not shown[k].strip()), default=-1) + 1
        values = [(m.group(), m.end()) for m in re.finditer(r"0\.\d+", shown[start + 1])]
        edge = len("row 0") if "row" in shown[start + 1] else 0
        for value, end in values:
            found[value] = "".join(part[edge:end].strip() for part in shown[top:start])
            edge = end
    assert found == {f"0.{j:03}": name for j, name in enumerate(DECODERS)}


def test_what_fits_is_one_table_with_headings_of_one_line():
    table = TextTable("errors", ("s", "linear decoder"), (("5", "0.1"), ("50", "12")))
    assert [line.rstrip() for line in lines(table, 60)] == [
        "errors",
        "",
        "s   linear decoder",
        "──────────────────",
        "5              0.1",
        "50              12",
        "",
    ]


def test_headings_take_several_lines_before_columns_are_folded():
    table = TextTable("", ("s", "bits per parameter", "winner"), (("5", "3.2", "amp"),))
    assert [line.rstrip() for line in lines(table, 24)] == [
        "    bits per",
        "s  parameter  winner",
        "────────────────────",
        "5        3.2     amp",
        "",
    ]


texts = st.text(st.characters(codec="utf-8"), max_size=30)


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(*[st.lists(texts, min_size=n, max_size=n).map(tuple)] * 3)
    ),
    st.integers(0, 3),
    st.integers(40, 120),
)
def test_no_text_makes_a_line_too_wide_or_is_lost(rows, left, width):
    heads, *body = rows
    table = TextTable("", heads, tuple(body), min(left, len(heads)))
    shown = lines(table, width)
    assert all(cell_len(line) <= width for line in shown)
    written = Counter(literal("".join(map("".join, rows))).plain)
    assert {s for s in written - Counter("".join(shown)) if not s.isspace()} == set()


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
@pytest.mark.parametrize("width", WIDTHS)
def test_counts_of_items_with_long_names(width, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = [f"https://example.org/{'shelf-' * 9}{k}" for k in range(3)]
    rows = [f"{user},{long[user % 2]},{user % 5}" for user in range(600)]
    Path("t.csv").write_text("\n".join(["who,what,much", *rows]))
    Path("items.txt").write_text("\n".join(long))
    line = "count t.csv --user who --item what --domain items.txt --epsilon 6 --max-items 1"
    more = "--simulation-seed 1 --weight much --max-weight 5"
    done = CliRunner(env={"COLUMNS": str(width)}).invoke(app, f"{line} {more}".split())
    assert done.exit_code == 0, done.output
    tables, _, remarks = done.stdout.partition("? marks items")
    assert all(cell_len(line) <= width for line in tables.splitlines())
    assert "nobody.\nAll results on this page" in remarks  # in a pipe sentences are not broken
    for heading in ("users", "low", "high", "sum", "mean"):
        assert heading in tables
