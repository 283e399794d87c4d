"""``compare R`` and ``sweep --recording R`` are two programs for one question: one answer."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.recordings.recording import Recording
from experiments.sweeps.cells import RecordingCell

DECODERS = ("linear", "lasso", "amp", "amp:auto")
SHAPES = {"embedding": (300,), "weight": (20, 15)}


def updates(seed, *, sparse=False):
    """Forty clients of very different norms; one sends NaN, one nothing at all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 600)) * rng.uniform(0.01, 0.2, (40, 1))
    X[:, :10] += 0.3
    if sparse:
        X[rng.random(X.shape) < 0.95] = 0
    X[5, 7], X[6] = np.nan, 0.0
    return X


def make_recording(path, kind):
    """Two rounds whose clip is recorded in one of three ways; most clients exceed it."""
    everywhere = {"of the round": 9.0, "of the recording": 0.7}.get(kind)
    made = Recording.create(path, shapes=SHAPES, clip_norm=everywhere)
    for number, clip in ((2, 0.4), (7, 0.9)):
        own = clip if kind == "of the round" else None
        made.append(number, updates(number, sparse=kind == "sparse"), clip_norm=own)
    return made.path


def run(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def compared(path, output, *, number, seed, noise):
    names = [word for decoder in DECODERS for word in ("--decoder", decoder)]
    found = run(
        *("compare", path, "--round", number, "--compression", 1, "--compression", 4),
        *(*noise, *names, "--n-bits", 16, "--n-rows", 8, "--draws", 2, "--seed", seed),
        *("--output", output),
    )
    return by_cell(found)


def swept(path, output, *, number, seed, noise):
    names = [word for decoder in DECODERS for word in ("--decoder", decoder)]
    found = run(
        *("sweep", "--recording", path, "--recorded-round", number, "--axis", "compression=1,4"),
        *(*noise, *names, "--n-bits", 16, "--n-rows", 8, "--seeds", 2, "--seed", seed),
        *("--jobs", 1, "--backend", "sequential", "--output", output),
    )
    return by_cell(found)


def by_cell(found):
    (sweep,) = found["sweeps"]
    assert all(row["status"] == "done" for row in sweep["results"]), sweep["results"]
    return {
        (row["compression"], row["decoder"], row["seed"]): (row["relative_error"], row["cosine"])
        for row in sweep["results"]
    }


@pytest.mark.parametrize(
    ("kind", "number", "seed", "noise"),
    [
        ("of the round", 2, 0, ("--epsilon", 20)),
        ("of the recording", 7, 3, ("--noise-multiplier", 0.2)),
        ("not recorded", 7, 1, ("--epsilon", 20)),
        ("sparse", 2, 0, ("--noise-multiplier", 0.2)),
    ],
)
def test_compare_and_sweep_agree_cell_by_cell_to_the_last_digit(
    tmp_path, kind, number, seed, noise
):
    recording = make_recording(tmp_path / "rec", kind)
    options = {"number": number, "seed": seed, "noise": noise}
    one = compared(recording, tmp_path / "c", **options)
    other = swept(recording, tmp_path / "s", **options)
    assert len(one) == 2 * len(DECODERS) * 2
    assert one == other
    assert len(set(one.values())) > len(DECODERS)  # they are not all the same number


def clipped_mean(X, clip):
    """The mean of the clipped clients, by the formula; who sends NaN counts as zero."""
    norms = np.linalg.norm(X, axis=1)
    factors = np.array([min(1, clip / norm) if norm > 0 else 0.0 for norm in norms])
    return (np.nan_to_num(X) * factors[:, None]).mean(axis=0)


def test_the_truth_is_the_mean_of_clients_clipped_as_the_round_was(tmp_path):
    """Without noise and sketch the linear decoder errs by rounding alone, in both programs."""
    made = Recording.create(tmp_path / "rec", clip_norm=9.0)
    made.append(2, updates(2), clip_norm=0.4)
    options = {"number": 2, "seed": 0, "noise": ("--noise-multiplier", 0)}
    for program in (compared, swept):
        errors = program(made.path, tmp_path / program.__name__, **options)
        assert errors[1.0, "linear", 0][0] < 1e-5
    found = run(
        *("sweep", "--recording", made.path, "--axis", "compression=1", "--noise-multiplier", 0),
        *("--decoder", "linear", "--seeds", 1, "--jobs", 1, "--output", tmp_path / "t"),
    )
    (row,) = found["sweeps"][0]["results"]
    truth = clipped_mean(np.asarray(made[0], dtype=float), 0.4)
    assert row["squared_norm"] == pytest.approx(truth @ truth, rel=1e-6)
    unclipped = clipped_mean(np.asarray(made[0], dtype=float), 9.0)
    assert unclipped @ unclipped > 2 * (truth @ truth)  # or the clip would not matter


def recorded_cell(path, number=0, **values):
    (cell,) = RecordingCell.of(path, (number,), **values)
    return cell


def test_the_clip_is_that_of_the_round_then_of_the_recording_then_the_median(tmp_path):
    made = Recording.create(tmp_path / "rec", clip_norm=0.7)
    made.append(0, updates(0), clip_norm=0.4)
    made.append(1, updates(1))
    assert recorded_cell(made.path, 0).clip_norm == 0.4
    assert recorded_cell(made.path, 1).clip_norm == 0.7
    assert recorded_cell(made.path, 0, clip_norm=2.0).clip_norm == 2.0
    bare = Recording.create(tmp_path / "bare")
    bare.append(0, updates(0))
    norms = np.linalg.norm(np.asarray(bare[0], dtype=float), axis=1)
    expected = np.median(norms[norms > 0])  # neither NaN nor who sent nothing
    assert recorded_cell(bare.path).clip_norm == pytest.approx(expected, rel=1e-12)
