"""Named arrays and their vector."""

import numpy as np
import pytest

from sparse_secagg.named_arrays import Layout

MODEL = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "n": np.array(3),
    "h": np.array([0.5, -2.0], np.float16),
    "flag": np.array([True]),
}


def test_there_and_back():
    layout = Layout.of(MODEL)
    assert layout.dim == 8
    assert layout.dtype == np.float32
    again = layout.unflatten(layout.flatten(MODEL), like=MODEL)
    assert list(again) == list(MODEL)
    for name, array in MODEL.items():
        assert again[name].dtype == array.dtype
        assert (again[name] == array).all()


def test_layers_are_what_a_round_takes():
    from sparse_secagg import RoundSpec

    layout = Layout.of(MODEL)
    assert layout.layers == {"w": slice(0, 6), "h": slice(6, 8)}
    assert RoundSpec(layers=layout.layers, encoder="identity").layers == layout.layers


def test_updates_are_differences():
    after = {**MODEL, "w": MODEL["w"] + 1}
    assert Layout.of(MODEL).flatten(after, MODEL).tolist() == [1.0] * 6 + [0.0] * 2


def test_double_precision_is_kept():
    model = {"a": np.array([1 + 1e-12]), "b": np.zeros(2, np.float32)}
    assert Layout.of(model).flatten(model)[0] == 1 + 1e-12


def test_a_small_type_takes_its_largest_value():
    layout = Layout.of({"h": np.zeros(1, np.float16)})
    assert (
        layout.unflatten(np.array([1e9]), like={"h": np.zeros(1, np.float16)})["h"][0]
        == np.finfo(np.float16).max
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {**MODEL, "w": np.zeros((3, 2), np.float32)},
            r"'w' has shape \(3, 2\); expected \(2, 3\)",
        ),
        ({k: v for k, v in MODEL.items() if k != "h"}, "'h' is missing"),
        ({**MODEL, "x": np.zeros(1)}, "'x' is new"),
    ],
)
def test_another_model_is_named(changed, message):
    with pytest.raises(ValueError, match=message):
        Layout.of(MODEL).flatten(changed)


def test_nothing_to_average():
    with pytest.raises(ValueError, match="floating-point"):
        Layout.of({"n": np.array(3)})
    with pytest.raises(ValueError, match="shape"):
        Layout.of(MODEL).unflatten(np.zeros(3), like=MODEL)
