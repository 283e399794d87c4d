"""``sparse-secagg epsilon``: one table from z to ε, the numbers of plan and training in it."""

import json

import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.report.epsilon_table import PRESETS, epsilon_table
from sparse_secagg.accounting import (
    DEFAULT_ORDERS,
    gaussian_rdp,
    poisson_subsampled_rdp,
    rdp_to_dp,
)

ORDERS = DEFAULT_ORDERS


def run(*arguments):
    return CliRunner().invoke(app, ["epsilon", *arguments])


def rows(*arguments):
    found = json.loads(run(*arguments, "--json").stdout)["rows"]
    return {row["noise_multiplier"]: row for row in found}


def test_golden_values_of_the_papers_settings():
    """F-EMNIST, 100 of 3400 clients, 1500 rounds, δ = 1/N: 3309 and 903 against the server."""
    found = rows("--preset", "f-emnist")
    assert found[0.5]["server"] == pytest.approx(3309, abs=1)
    assert found[1.0]["server"] == pytest.approx(903, abs=1)
    # the tighter bounds for secret cohorts of fixed size; the general one alone gives 142 at z = 1
    assert found[1.0]["release"] < 60
    assert found[4.0]["release"] < 1.2
    q = 100 / 3400
    rdp = 1500 * poisson_subsampled_rdp(ORDERS, lambda a: gaussian_rdp(a, 1.0), q)
    assert found[1.0]["trusted_server"] == pytest.approx(rdp_to_dp(ORDERS, rdp, 1 / 3400), rel=1e-3)


def test_every_z_orders_its_observers():
    for preset in PRESETS.values():
        for row in epsilon_table(preset):
            assert row.release <= row.server
            assert row.colluders == row.server


def test_colluders_and_several_values():
    found = rows(
        "--clients", "1e2", "--population", "1e4", "--rounds", "10", "--noise-multiplier", "1", "2",
        "--colluders", "40",
    )  # fmt: skip
    assert set(found) == {1.0, 2.0}
    for z, row in found.items():
        rdp = 10 * gaussian_rdp(ORDERS, z * 0.6**0.5)
        assert row["colluders"] == pytest.approx(rdp_to_dp(ORDERS, rdp, 1e-5), rel=1e-3)
        assert row["release"] < row["server"] < row["colluders"]


def test_the_table_is_written_for_spreadsheets_and_papers(tmp_path):
    done = run("--clients", "50", "--noise-multiplier", "1", "0.5", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    head, *lines = (tmp_path / "epsilon.csv").read_text().splitlines()
    assert head == "z,server,release,trusted server"
    assert [line.split(",")[0] for line in lines] == ["1", "0.5"]
    assert r"\toprule" in (tmp_path / "epsilon.tex").read_text()


def test_without_a_population_nothing_is_amplified():
    row = rows("--clients", "50", "--noise-multiplier", "1")[1.0]
    assert row["release"] == row["server"]


def test_the_table_names_its_observers():
    text = run("--clients", "50", "--colluders", "3", "--noise-multiplier", "1").stdout
    for word in ("server + 3", "release", "trusted server", "fixed"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--clients"),
        (("--preset", "mnist"), "f-emnist"),
        (("--clients", "10.5"), "whole number"),
        (("--clients", "100", "--population", "10"), "--population 10"),
        (("--clients", "100", "--noise-multiplier", "nan"), "nan"),
        (("--clients", "100", "--delta", "2"), "--delta 2"),
    ],
)
def test_mistakes_are_explained(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
