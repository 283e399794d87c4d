"""A PyTorch state_dict and its vector."""

from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sparse_secagg.clipped_rows import as_vector  # noqa: E402
from sparse_secagg.torch import flatten, layers, unflatten  # noqa: E402


class Model(torch.nn.Module):
    """Tied embeddings, half precision, counters."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.out = torch.nn.Linear(3, 7, bias=False)
        self.out.weight = self.embed.weight
        self.small = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))


@pytest.fixture
def state():
    torch.manual_seed(0)
    return Model().state_dict()


def test_there_and_back(state):
    again = unflatten(flatten(state), state)
    assert list(again) == list(state)
    for name, tensor in state.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name], tensor)
    Model().load_state_dict(again)


def test_tied_tensors_are_one(state):
    assert "out.weight" not in layers(state)
    assert len(flatten(state)) == 21 + 4 * 3 + 4
    again = unflatten(flatten(state) + 1, state)
    assert again["out.weight"].data_ptr() == again["embed.weight"].data_ptr()


def test_counters_keep_their_values(state):
    assert "norm.num_batches_tracked" not in layers(state)
    state["norm.num_batches_tracked"] += 5
    assert unflatten(flatten(state), state)["norm.num_batches_tracked"] == 5


def test_updates_are_differences(state):
    after = {k: v + 1 if v.is_floating_point() else v for k, v in state.items()}
    after["out.weight"] = after["embed.weight"]
    assert np.allclose(flatten(after, state), 1.0, atol=1e-3)


def test_a_wrong_shape_names_the_tensor(state):
    before = {**state, "small": torch.ones(5, dtype=torch.float16)}
    with pytest.raises(ValueError, match=r"'small' has shape \(4,\), before \(5,\)"):
        flatten(state, before)
    with pytest.raises(ValueError, match="'small' is missing"):
        flatten(state, {k: v for k, v in state.items() if k != "small"})
    with pytest.raises(ValueError, match="shape"):
        unflatten(np.zeros(3), state)


def test_values_beyond_half_precision_stay_finite(state):
    again = unflatten(np.full(len(flatten(state)), 1e9, np.float32), state)
    assert torch.isfinite(again["small"]).all()


def test_layers_cover_the_vector(state):
    places = list(layers(state).values())
    assert places[0].start == 0
    assert all(a.stop == b.start for a, b in pairwise(places))
    assert places[-1].stop == len(flatten(state))


def test_a_model_of_integers():
    with pytest.raises(ValueError, match="floating-point"):
        flatten({"n": torch.tensor(3)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_tensor_is_a_clients_vector_as_it_is(dtype):
    tensor = (torch.arange(60) / 64).to(dtype).requires_grad_()
    vector = as_vector(tensor)
    assert vector.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    np.testing.assert_array_equal(vector, tensor.detach().double().numpy())
    shared = dtype in (torch.float32, torch.float64)
    assert (vector.ctypes.data == tensor.data_ptr()) == shared  # not copied


def test_views_empty_tensors_and_small_types():
    grid = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4) / 8
    state = {
        "turned": grid.T,  # not contiguous, and beside its own transpose not tied to it
        "grid": grid,
        "none": torch.zeros(0, 4),
        "also none": torch.zeros(0, 4),
        "scalar": torch.tensor(2.0, dtype=torch.float64),
        "mask": torch.tensor([True, False]),
        "complex": torch.tensor([1j]),
    }
    vector = flatten(state)
    assert vector.dtype == np.float64
    assert vector.tolist() == [*grid.T.flatten().tolist(), *grid.flatten().tolist(), 2.0]
    again = unflatten(vector, state)
    assert list(again) == list(state)
    for name, tensor in state.items():
        assert (again[name].dtype, again[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(again[name], tensor)
