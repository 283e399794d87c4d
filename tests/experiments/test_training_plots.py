import pytest

from experiments.report.training_figures import draw_decoders
from experiments.sweeps.cells import TaskCell
from experiments.sweeps.store import Result


def result(accuracy, **values):
    return Result(TaskCell(**values), "done", {"accuracy": accuracy})


def test_a_panel_a_noise_level_and_a_curve_a_decoder():
    results = [
        result(0.9 - rate / 1000 - 0.01 * seed, seed=seed, decoder=decoder, **values)
        for noise in (0.0, 0.5)
        for rate in (1.0, 10.0, 50.0)
        for decoder in ("linear", "amp")
        for seed in (0, 1)
        for values in [{"noise_multiplier": noise, "compression": rate}]
    ]
    figure = draw_decoders(results)
    assert [panel.get_title() for panel in figure.axes] == [
        "noise multiplier z = 0",
        "noise multiplier z = 0.5",
    ]
    curves = figure.axes[0].containers
    assert [curve.get_label() for curve in curves] == ["amp", "linear"]
    assert list(curves[0].lines[0].get_ydata()) == pytest.approx([88.5, 84.5])  # means of seeds
    dashed = next(line for line in figure.axes[0].lines if line.get_linestyle() == "--")
    assert dashed.get_ydata()[0] == pytest.approx(89.4)  # r = 1


def test_results_of_several_tasks_are_refused():
    with pytest.raises(ValueError, match="2 tasks"):
        draw_decoders([result(0.5, task="digits"), result(0.5, task="mnist")])
