"""The command that counts."""

import csv
import json

import pytest
from typer.testing import CliRunner

from experiments.cli import app
from sparse_secagg.accounting import Ledger

run = CliRunner().invoke


@pytest.fixture
def table(tmp_path):
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "what", "much"])
        for user in range(900):
            writer.writerow([user, "[/]", 2.0])
            writer.writerow([user, "tea\nleaf" if user % 2 else "coffee", 1.0])
    (tmp_path / "items.txt").write_text("[/]\ncoffee\nmilk\n")
    (tmp_path / "scores.csv").write_text("coffee,3\n[/],2\n")
    return tmp_path


def command(folder, *more):
    return ["count", str(folder / "t.csv"), "--user", "who", "--item", "what", *more]


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
def test_counts_as_text_json_and_files(table):
    options = ["--domain", str(table / "items.txt"), "--epsilon", "6", "--simulation-seed", "1"]
    text = run(app, command(table, *options, "--max-items", "2"))
    assert text.exit_code == 0, text.output
    assert "[/]" in text.output
    assert "NOT PRIVATE" in text.output
    assert "the wrong way round" not in text.output
    done = run(app, command(table, *options, "--json", "--output", str(table / "out")))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [c["item"] for c in found["counts"] if c["significant"]] == ["[/]", "coffee"]
    assert found["epsilon"] <= 6
    assert {p.name for p in (table / "out").iterdir()} == {
        "counts.csv", "counts.json", "counts.tex", "report.html",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
def test_where_nothing_stands_out_it_is_said(table):
    options = ["--user", "what", "--item", "who", "--domain", "2**8", "--simulation-seed", "1"]
    done = run(app, ["count", str(table / "t.csv"), *options, "--max-items", "2"])
    assert done.exit_code == 0, done.output
    assert "the wrong way round" in done.output


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
def test_sums_and_priors(table):
    options = ["--domain", "2**8", "--epsilon", "6", "--simulation-seed", "1", "--weight", "much"]
    options += ["--max-weight", "2", "--max-items", "2", "--candidates", str(table / "items.txt")]
    options += ["--max-bytes", "400"]  # so few that the counts are sketched, where a prior helps
    done = run(app, command(table, *options, "--prior", f"scores:{table / 'scores.csv'}"))
    assert done.exit_code == 0, done.output
    assert "mean" in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--domain says what is counted"),
        (["--domain", "2**10", "--epsilon", "-1"], "epsilon"),
        (["--domain", "2**10", "--prior", "nothing"], "scores:FILE"),
        (["--domain", "2**10", "--weight", "much"], "max_weight"),
        (["--domain", "2**10", "--weight", "none", "--max-weight", "1"], "no column"),
        (["--domain", "items.txt", "--candidates", "items.txt"], "candidates"),
        (["--domain", "2**10", "--candidates", "none.txt"], "--candidates none.txt is no file"),
        (["--domain", "2**10", "--output", "items.txt"], "items.txt"),
        (["--domain", "1e4", "--max-bytes", "10"], "--max-bytes 10 cannot hold"),
    ],
)
def test_mistakes_are_named_and_cost_nothing(table, options, message, monkeypatch):
    monkeypatch.chdir(table)
    done = run(app, command(table, *options, "--ledger", "spent.sqlite"))
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())
    assert Ledger(1e-6, path="spent.sqlite").rounds == 0


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
def test_results_that_were_paid_for_are_shown_even_if_no_file_can_be_written(table, monkeypatch):
    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr("experiments.cli.count._write", full)
    options = ["--domain", str(table / "items.txt"), "--epsilon", "6", "--simulation-seed", "1"]
    done = run(app, command(table, *options, "--max-items", "2", "--output", str(table / "out")))
    assert done.exit_code != 0
    assert "coffee" in done.output


@pytest.mark.filterwarnings("ignore::sparse_secagg.PrivacyWarning")
def test_names_that_a_spreadsheet_would_run_are_written_exactly_and_pointed_out(tmp_path):
    rows = [f"{user},=SUM(A1)" for user in range(900)]
    (tmp_path / "t.csv").write_text("\n".join(["who,what", *rows]))
    (tmp_path / "items.txt").write_text("=SUM(A1)\nmilk\n")
    options = ["--domain", str(tmp_path / "items.txt"), "--epsilon", "6", "--simulation-seed", "1"]
    done = run(app, command(tmp_path, *options, "--output", str(tmp_path / "out")))
    assert done.exit_code == 0, done.output
    assert "'=SUM(A1)', which a spreadsheet takes for" in done.stderr
    with (tmp_path / "out" / "counts.csv").open(newline="") as file:
        assert "=SUM(A1)" in [cell for row in csv.reader(file) for cell in row]
