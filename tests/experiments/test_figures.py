"""Every figure that commands make: one look per decoder, and every legend inside the picture."""

import numpy as np
import pytest

from experiments.recordings.recording import Recording
from experiments.report import style
from experiments.report.demo_figure import draw_demo
from experiments.report.epsilon_table import PRESETS, epsilon_table
from experiments.report.figures import caption, donoho_tanner, draw_paper, draw_phase, draw_sweep
from experiments.report.paper_figures import (
    draw_bounds,
    draw_epsilon,
    draw_layer_rates,
    draw_power,
    draw_tail,
)
from experiments.report.plan_figure import draw_plan
from experiments.report.recording_tables import layers_table
from experiments.report.training_report import draw as draw_training
from experiments.results.table import SweepTable
from experiments.sweeps.cells import MeanCell, RecordingCell, TaskCell
from experiments.sweeps.store import Result
from experiments.training.config import TrainingConfig
from experiments.training.loop import run_training
from sparse_secagg import plan
from sparse_secagg.counting.report import figure_of as draw_counts
from sparse_secagg.counting.results import Count

MANY = ("linear", "median", "ridge", "lasso", "lasso:debias", "amp", "amp:low_rank,debias", "auto")


def table(axes, cells, value, seeds=3):
    """Made-up results of cells; the seed moves them a little."""
    rng = np.random.default_rng(0)
    results = []
    for seed in range(seeds):
        for cell in cells:
            found = value(cell) * float(np.exp(0.05 * rng.standard_normal()))
            metrics = {
                cell.metric: found,
                "bits_per_parameter": cell.spec.n_bits / cell.spec.compression,
                "theory_linear": 5.0,
                "theory_lasso": 0.3,
                "theory_central": 1.2,
                "theory_support": 0.05,
                "dim": 5000,
                "n_clients": 500,
            }
            results.append(Result(cell.with_values(seed=seed), "done", metrics))
    return SweepTable(results, axes)


def curves(encoders=("count_sketch",), decoders=MANY):
    cells = [
        MeanCell(sparsity=s, decoder=d, encoder=e)
        for e in encoders
        for d in decoders
        for s in (5, 20, 100)
    ]
    return table(
        ("sparsity",),
        cells,
        lambda c: 0.1 * (1 + MANY.index(c.spec.decoder)) * c.spec.sparsity**0.5,
    )


def matrix(decoders=("linear", "amp")):
    cells = [
        MeanCell(mean="dense", noise_multiplier=z, compression=r, decoder=d)
        for z in (0.3, 1.0, 4.0)
        for r in (1, 10, 100)
        for d in decoders
    ]
    return table(
        ("noise_multiplier", "compression"),
        cells,
        lambda c: 0.1 + c.spec.noise_multiplier * c.spec.compression**0.1,
    )


def training_matrix():
    cells = [
        TaskCell.of("digits", noise_multiplier=z, compression=r, rounds=2)
        for z in (0.3, 1.0)
        for r in (1, 10, 100)
    ]
    return table(
        ("noise_multiplier", "compression"), cells, lambda c: 0.9 - c.spec.compression / 500
    )


def phase():
    cells = [
        MeanCell(density=s, compression=r, decoder=d, noise_multiplier=0.0)
        for s in (0.1, 0.3, 0.5)
        for r in (10, 5, 2)
        for d in ("lasso", "amp")
    ]
    return table(("density", "compression"), cells, lambda c: 1e-6 if c.density < 0.3 else 0.5)


def power():
    cells = [MeanCell(mean="dense", clients=n) for n in (50, 100, 200, 400)]
    return table(("clients",), cells, lambda c: 1e5 / c.clients**2)


def bounds():
    cells = [
        MeanCell(mean="dense", n_bits=b, compression=r, encoder=e, mechanism=m)
        for b in (8, 12, 18)
        for r in (1, 5, 50)
        for e in ("count_sketch", "hadamard", "gaussian")
        for m in ("ddg", "skellam")
    ]
    return table(
        ("n_bits", "compression"), cells, lambda c: c.spec.compression + 2.0 ** (8 - c.spec.n_bits)
    )


def layer_rates():
    groups = {"": 1.0, "dense1=5,rest=5": 5.0, "dense1=5,rest=50": 8.1, "dense1=50,rest=5": 20.3}
    cells = [
        TaskCell.of("digits", noise_multiplier=1.0, compression=r, rounds=2, layer_compression=g)
        for g, rates in ((g, (1, 5, 50) if not g else (r,)) for g, r in groups.items())
        for r in rates
    ]
    return table(("compression",), cells, lambda c: 0.9 - c.spec.compression / 500)


def demo():
    rows = [("$" * (k % 2) + f"__name_{k}__", 900.0 - 40 * k) for k in range(20)]
    return {
        "seed": 0,
        "train": {
            "plain": [0.1 + 0.03 * k for k in range(28)],
            "private": [0.1 + 0.028 * k for k in range(28)],
            "budget": "ε = 4, 1.8 bits per parameter",
        },
        "count": {
            "top": [
                {"item": name, "count": x, "low": x - 200, "high": x + 200, "exact": x + 30}
                for name, x in rows
            ],
            "n": 1747,
            "budget": "ε = 1, 95 % intervals, ≤ 76 names per file",
        },
        "decode": [
            {"decoder": name, "sparsity": s, "relative_error": 0.001 * s * (1 + k)}
            for k, name in enumerate(("linear", "ridge", "working_set", "amp"))
            for s in (5, 20, 80, 320, 1280)
        ],
    }


def counts():
    rows = [(f"https://example.org/{k}/" + "long" * k, 1000.0 / (k + 1)) for k in range(14)]
    return [Count(item, x, x - 120, x + 120, x > 120) for item, x in rows]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "rec"
    made = Recording.create(folder, shapes={"embedding": (60,), "weight": (10, 8)}, clip_norm=1.0)
    rng = np.random.default_rng(0)
    for number in (0, 3):
        made.append(number, 0.1 * rng.standard_normal((12, 140)) + 0.02)
    cells = RecordingCell.of(folder)
    results = [
        Result(
            cell.with_values(decoder=name, seed=seed),
            "done",
            {
                "relative_error": 0.5 + k,
                "error of embedding": 0.3 + k,
                "error of weight": 2.0,
                "bits_per_parameter": 1.0,
                "dim": 140,
                "n_clients": 12,
            },
        )
        for cell in cells
        for k, name in enumerate(MANY)
        for seed in (0, 1)
    ]
    return str(folder), SweepTable(results, ("compression",))


@pytest.fixture(scope="module")
def run():
    return run_training(
        TrainingConfig(task="digits", rounds=2, clients=10, noise_multiplier=1.0, colluders=2)
    )


def figures(width, recorded, run):
    _, compared = recorded
    request = {"d": 800, "n_clients": 300, "sparsity": 30, "epsilon": 3.0}
    return {
        "curves": draw_sweep(curves(), width=width),
        "curves of two encoders": draw_sweep(
            curves(("count_sketch", "gaussian"), ("linear", "amp")), width=width
        ),
        "heat map": draw_sweep(matrix(), width=width),
        "paper, errors": draw_paper(matrix(), 1.0, width=width),
        "paper, accuracies": draw_paper(training_matrix(), 0.01, width=width),
        "phase": draw_phase(phase(), width=width),
        "bars": draw_sweep(compared, width=width),
        "training": draw_training(run, width=width),
        "plan": draw_plan(plan(**request), request, width=7.2 * width),
        "power": draw_power(power(), "clients", -2.0, width=width),
        "bounds": draw_bounds(bounds(), width=width),
        "tail": draw_tail(
            1 + 0.07 * np.random.default_rng(0).standard_normal(500), 400, width=width
        ),
        "epsilon": draw_epsilon({n: epsilon_table(p) for n, p in PRESETS.items()}, width=width),
        "layer rates": draw_layer_rates(layer_rates(), width=width),
        "demo": draw_demo(demo(), width=width),
        "counts": draw_counts(
            counts(),
            "the 14 largest counts of 2,000 users, ε = 1, δ = 1e-06, at most 3 items per user",
            width=7.5 * width,
        ),
    }


@pytest.mark.parametrize("width", [0.6, 1.0, 1.8])
def test_every_legend_caption_and_label_is_inside_the_picture_and_no_label_covers_another(
    width, recorded, run
):
    for name, figure in figures(width, recorded, run).items():
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        page = figure.bbox
        texts = [figure._suptitle, *figure.legends]
        for axis in figure.axes:
            texts += [axis.title, axis.xaxis.label, axis.yaxis.label]
            texts += [legend for legend in [axis.get_legend()] if legend is not None]
        for text in texts:
            box = text.get_window_extent(renderer)
            if box.width and box.height:
                inside = (
                    box.x0 >= page.x0 - 1
                    and box.x1 <= page.x1 + 1
                    and box.y0 >= page.y0 - 1
                    and box.y1 <= page.y1 + 1
                )
                assert inside, (name, width, text, box, page)
        for axis in figure.axes:
            labels = axis.get_xticklabels(which="both")
            level = [t for t in labels if t.get_text() and not t.get_rotation()]
            boxes = [text.get_window_extent(renderer) for text in level]
            left, right = axis.bbox.x0 - 9, axis.bbox.x1 + 9
            shown = [box for box in boxes if left <= box.x0 and box.x1 <= right]
            assert not any(a.overlaps(b) for k, a in enumerate(shown) for b in shown[:k]), name


def test_errors_by_layer_are_a_table_of_geometric_means(recorded):
    table = layers_table(recorded[1])
    assert table.heads == ("compression r = d/m", "layer", *MANY)
    first, second, *_ = table.rows
    assert first[:4] == ("10", "embedding", "0.3", "1.3")
    assert set(second[2:]) == {"2"}


def test_legends_do_not_cover_the_panels(recorded, run):
    for name, figure in figures(0.6, recorded, run).items():
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        for legend in figure.legends:
            box = legend.get_window_extent(renderer)
            for axis in figure.axes:
                assert not box.overlaps(axis.get_window_extent(renderer)), name


def test_a_decoder_has_one_look_in_every_figure():
    first, second = draw_sweep(curves()), draw_sweep(curves(("gaussian",), ("amp", "linear")))
    for name in ("linear", "amp"):
        looks = set()
        for figure in (first, second):
            (line,) = [line for line in figure.axes[0].lines if line.get_label() == name]
            looks.add((line.get_color(), line.get_marker()))
        assert looks == {(style.decoder_style(name)["color"], style.decoder_style(name)["marker"])}


def test_every_solver_has_a_colour_and_marker_of_its_own():
    import solvers

    looks = {
        name: tuple(style.decoder_style(name)[key] for key in ("color", "marker"))
        for name in solvers.names()
    }
    assert len(set(looks.values())) == len(looks), looks
    assert style.decoder_style("lasso") == style.decoder_style("working_set")
    assert style.decoder_style("amp:debias")["color"] == style.decoder_style("amp")["color"]
    assert style.decoder_style("amp:debias")["linestyle"] != style.decoder_style("amp")["linestyle"]
    own = style.decoder_style("my_module:MySolver")
    assert own == style.decoder_style("my_module:MySolver")


def test_curves_that_coincide_are_told_apart():
    same = style.apart({"a": [1.0, 2.0], "b": [1.001, 2.001], "c": [3.0, 4.0]})
    assert set(same) == {"a", "b"}
    (start_a, (on_a, off_a)), (start_b, _) = same["a"], same["b"]
    assert (on_a, off_a) == (5.0, 5.0)
    assert start_b - start_a == on_a  # one's dashes fill the other's gaps
    assert style.apart({"a": [1.0, 2.0], "b": [1.0, 2.2]}) == {}


def test_forms_of_one_decoder_and_their_limits_are_told_apart():
    forms = ["amp", "amp:debias", "amp:groups", "amp:scores=a.csv", "amp:positive", "amp:low_rank"]
    looks = style.decoder_styles(["linear", *forms])
    assert len({str(looks[name]["linestyle"]) for name in forms}) == len(forms)
    made = curves(decoders=("amp", "amp:low_rank,debias", "auto"))
    for result in made.results:
        result.metrics["theory_limit"] = 0.5
    limits = [
        (line.get_color(), line._dash_pattern)
        for line in draw_sweep(made).axes[0].lines
        if str(line.get_label()).startswith("limit of")
    ]
    assert len({str(each) for each in limits}) == len(limits) == 3


def test_captions_say_what_does_not_vary(recorded):
    text = caption(curves())
    for words in ("d = 5,000", "n = 500", "r = 10", "z = 1", "b = 18", "seeds 0–2"):
        assert words in text
    assert "s =" not in text
    assert "recorded rounds 0, 3" in caption(recorded[1])
    assert "ε = 1" in caption(recorded[1])


def test_pictures_are_written_in_three_formats(tmp_path):
    paths = style.save(draw_sweep(matrix()), tmp_path / "deep" / "figure")
    assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
    starts = [path.read_bytes()[:4] for path in paths]
    assert starts == [b"\x89PNG", b"<?xm", b"%PDF"]


def test_the_theoretical_line_has_its_known_values():
    """Donoho and Tanner's weak threshold, as tabulated: 0.1 -> 0.189, 0.5 -> 0.386."""
    found = donoho_tanner(np.array([0.1, 0.25, 0.5]))
    assert found == pytest.approx([0.1887, 0.2674, 0.3858], abs=2e-3)


def test_the_band_of_the_paper_is_the_slack_below_the_uncompressed_run():
    figure = draw_paper(training_matrix(), 0.01)
    labels = figure.legends[0].get_texts()
    assert "within 1 point" in [text.get_text() for text in labels]
    assert "r = 1: no sketch" in [text.get_text() for text in labels]


def test_observers_who_learn_the_same_are_told_apart():
    config = TrainingConfig(task="digits", rounds=2, clients=10, noise_multiplier=1.0)
    figure = draw_training(run_training(config))  # the cohorts are no secret: server = release
    server, release = figure.axes[1].lines
    assert list(server.get_ydata()) == list(release.get_ydata())
    assert server._dash_pattern != release._dash_pattern


def test_files_are_shown_without_their_folders_and_long_names_are_cut():
    assert style.decoder_label("amp:debias,scores=/a/b/c.csv") == "amp:debias,scores=c.csv"
    assert style.decoder_label("amp") == "amp"
    assert len(style.decoder_label("module.of.somebody.with.a.long.name:Solver")) == 32
