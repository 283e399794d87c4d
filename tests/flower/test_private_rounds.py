"""Private rounds through Flower's messages, all nodes in one process."""

import json

import numpy as np
import pytest

from sparse_secagg import RoundSpec
from sparse_secagg.accounting import Ledger
from tests.flower.conftest import LoopbackGrid, as_record, make_app, make_nodes, read_json

flwr = pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict  # noqa: E402

from sparse_secagg.flower import PrivateFedAvg  # noqa: E402
from sparse_secagg.round.parts import parts_of  # noqa: E402
from sparse_secagg.secagg.budget import Budget  # noqa: E402

SPEC = RoundSpec(epsilon=3000.0, encoder="identity", n_bits=30, clip_norm=2.0, decoder="linear")


def change(partition, name):
    return 0.1 * (partition + 1)


def run(folder, model, *, rounds=1, num_rounds=None, grid=None, spec=SPEC, **options):
    roster = make_nodes(folder) if grid is None else options.pop("roster")
    grid = grid or LoopbackGrid(make_app(change), folder)
    strategy = PrivateFedAvg(spec, roster, rounds=rounds, random_state=0, **options)
    result = strategy.start(grid, as_record(model), num_rounds=num_rounds or rounds)
    return strategy, result, grid


def test_a_round_moves_the_model_by_the_mean_update(tmp_path, model):
    strategy, result, _ = run(tmp_path, model)
    moved = {name: a.numpy() for name, a in result.arrays.items()}
    noise = 6 * strategy.aggregate_.noise_std
    assert noise < 0.1
    assert np.abs(moved["w"] - 0.25).max() < noise
    assert np.abs(moved["h"].astype(float) - 1.25).max() < noise + 1e-3
    assert abs(float(moved["s"]) - 2.25) < noise
    assert moved["steps"].tolist() == [7]  # a counter is not averaged
    for name, array in model.items():
        assert (moved[name].dtype, moved[name].shape) == (array.dtype, np.shape(array))


def test_the_ledger_the_metrics_and_the_nodes_agree(tmp_path, model):
    _, result, _ = run(tmp_path, model, rounds=3, ledger=tmp_path / "ledger.sqlite")
    spent = [result.train_metrics_clientapp[i]["epsilon-server"] for i in (1, 2, 3)]
    assert spent == sorted(spent)
    assert spent[-1] == Ledger(1e-5, path=tmp_path / "ledger.sqlite").epsilon("server")
    assert spent[-1] <= 3000.0
    last = result.train_metrics_clientapp[3]
    assert last["epsilon-colluders"] >= last["epsilon-server"] == last["epsilon-release"]
    assert last["survivors"] == 4
    assert 0 < last["bytes-per-client"] < 5000


def test_no_round_is_begun_beyond_the_budget(tmp_path, model):
    strategy, result, grid = run(tmp_path, model, rounds=2, num_rounds=4)
    assert strategy.ledger.rounds == 2
    assert strategy.ledger.epsilon("colluders") <= 3000.0
    assert sum(stage == "mask" for stage, _, _ in grid.sent) == 2 * 4
    assert result.train_metrics_clientapp[4]["survivors"] == 0


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "confirm", "unmask"])
def test_a_node_may_die_at_any_stage(tmp_path, model, stage):
    roster = make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    grid.deaths[101] = stage
    strategy, result, _ = run(
        tmp_path, model, grid=grid, roster=roster, wait_seconds=0.0,
        spec=SPEC.replace(min_survivors=3),
    )  # fmt: skip
    sent = stage in ("confirm", "unmask")  # its masked update had come
    assert strategy.aggregate_.survivors.tolist() == ([0, 1, 2, 3] if sent else [0, 2, 3])
    mean = np.mean([0.1, 0.2, 0.3, 0.4] if sent else [0.1, 0.3, 0.4])
    moved = result.arrays["w"].numpy()
    assert np.abs(moved - mean).max() < 6 * strategy.aggregate_.noise_std


def test_too_few_nodes_end_the_round_and_leave_the_model(tmp_path, model):
    roster = make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    grid.deaths = {101: "mask", 102: "mask"}
    strategy, result, _ = run(
        tmp_path, model, grid=grid, roster=roster, spec=SPEC.replace(min_survivors=3)
    )
    assert result.train_metrics_clientapp[1]["survivors"] == 0
    assert strategy.ledger.rounds == 1  # masked updates had been asked for: the charge stays
    assert strategy.aggregate_ is None


def test_only_masked_bytes_leave_a_node(tmp_path, model):
    *_, grid = run(tmp_path, model)
    for _, _, reply in grid.sent:
        assert set(reply.content) == {"sparse_secagg"}
        assert set(reply.content["sparse_secagg"]) == {"message"}


def test_the_sum_is_the_ideal_one_bit_for_bit(tmp_path, model, monkeypatch):
    """What the agents release, added in clear, is what the strategy unmasks."""
    from sparse_secagg.agent import ClientAgent
    from sparse_secagg.secagg import IdealSecAgg
    from sparse_secagg.secagg.server import ServerSession

    released, totals = [], []
    release, total = ClientAgent.release, ServerSession.total
    monkeypatch.setattr(
        ClientAgent, "release", lambda *a: released.append(release(*a)) or released[-1]
    )
    monkeypatch.setattr(ServerSession, "total", lambda s: totals.append(total(s)) or totals[-1])
    roster = make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    grid.deaths[103] = "mask"
    strategy, *_ = run(
        tmp_path, model, grid=grid, roster=roster, spec=SPEC.replace(min_survivors=3)
    )
    p = strategy.aggregate_.config.mechanism
    adding = IdealSecAgg().begin(3, p.padded_dim, modulus=p.modulus)
    adding.add(np.array(released))
    assert (adding.finish().total == totals[0]).all()


def test_public_weights(tmp_path, model):
    weights = {f"node {i}": w for i, w in enumerate([1.0, 3.0, 2.0, 2.0])}
    strategy, result, _ = run(tmp_path, model, weights=weights)
    mean = np.average([0.1, 0.2, 0.3, 0.4], weights=[1, 3, 2, 2])
    assert np.abs(result.arrays["w"].numpy() - mean).max() < 6 * strategy.aggregate_.noise_std
    with pytest.raises(ValueError, match="'node 3'"):
        PrivateFedAvg(SPEC, strategy.roster, rounds=1, weights={f"node {i}": 1.0 for i in range(3)})


def test_momentum_and_rate(tmp_path, model):
    _, result, _ = run(
        tmp_path, model, rounds=2, momentum=0.5, server_learning_rate=2.0,
        spec=SPEC.replace(epsilon=50_000.0),
    )  # fmt: skip
    # 0.25 a round: v = 0.25, then 0.375; twice their sum
    assert np.abs(result.arrays["w"].numpy() - 1.25).max() < 0.1


# --- what a node refuses --------------------------------------------------------------------------


def replies_with_errors(grid):
    return [reply.error.reason for _, _, reply in grid.sent if reply.has_error()]


def test_training_in_clear_is_refused(tmp_path, model):
    make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    content = RecordDict({"arrays": as_record(model), "config": flwr.app.ConfigRecord()})
    grid.send_and_receive([Message(content, 100, MessageType.TRAIN)])
    assert "in clear" in replies_with_errors(grid)[0]


@pytest.mark.parametrize("allowed", [True, False])
def test_evaluation_in_clear_is_the_nodes_decision(tmp_path, model, allowed):
    make_nodes(tmp_path, evaluates=allowed)
    grid = LoopbackGrid(make_app(change), tmp_path)
    content = RecordDict({"arrays": as_record(model)})
    (reply,) = grid.send_and_receive([Message(content, 100, MessageType.EVALUATE)])
    assert reply.has_error() is not allowed


def test_a_spent_budget_refuses_and_later_rounds_go_on(tmp_path, model):
    roster = make_nodes(tmp_path)
    (tmp_path / "2" / "budget.sqlite").unlink()
    Budget(tmp_path / "2" / "budget.sqlite", 2500.0, 1e-5)  # enough for one round, not for two
    grid = LoopbackGrid(make_app(change), tmp_path)
    strategy, result, _ = run(
        tmp_path, model, grid=grid, roster=roster, rounds=2, spec=SPEC.replace(min_survivors=3)
    )
    survivors = [result.train_metrics_clientapp[i]["survivors"] for i in (1, 2)]
    assert survivors == [4, 3]
    assert strategy.aggregate_.survivors.tolist() == [0, 1, 3]
    assert "budget" in replies_with_errors(grid)[0]


def test_a_round_above_a_nodes_limit_goes_on_without_it(tmp_path, model):
    roster = make_nodes(tmp_path)
    limits = read_json(tmp_path / "2" / "policy.json")
    (tmp_path / "2" / "policy.json").write_text(json.dumps(limits | {"max_epsilon": 0.1}))
    grid = LoopbackGrid(make_app(change), tmp_path)
    strategy, *_ = run(
        tmp_path, model, grid=grid, roster=roster, spec=SPEC.replace(min_survivors=3)
    )
    assert strategy.aggregate_.survivors.tolist() == [0, 1, 3]
    assert "limit 0.1" in replies_with_errors(grid)[0]


def test_a_stage_cannot_be_asked_for_twice(tmp_path, model):
    """A server that repeats the masking stage with another model gets nothing for it."""
    roster = make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    asked = []

    def keep(stage, node, message):
        if stage == "mask":
            asked.append(dict(message.content["sparse_secagg"]))
        return message

    grid.change = keep
    run(tmp_path, model, grid=grid, roster=roster)
    ours = flwr.app.ConfigRecord(asked[0])
    content = RecordDict({"sparse_secagg": ours, "arrays": as_record(model)})
    (reply,) = grid.send_and_receive([Message(content, 100, MessageType.TRAIN)])
    assert reply.has_error()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"stage": "advertise"}, "document"),
        ({"stage": "advertise", "document": "{}"}, ""),
        ({"stage": "mask", "message": b"x"}, "not part of the round"),
        ({}, "not part of the round"),
    ],
)
def test_whatever_a_server_sends_is_refused(tmp_path, model, values, reason):
    make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)
    content = RecordDict({"sparse_secagg": flwr.app.ConfigRecord({"stage": "", **values})})
    (reply,) = grid.send_and_receive([Message(content, 100, MessageType.TRAIN)])
    assert reply.has_error()
    assert reason in reply.error.reason


@pytest.mark.parametrize("kind", ["numpy.ndarray", "another"])
def test_arrays_that_cannot_be_read_are_refused(tmp_path, model, kind):
    roster = make_nodes(tmp_path)
    grid = LoopbackGrid(make_app(change), tmp_path)

    def spoil(stage, node, message):
        if (stage, node) == ("mask", 100):
            message.content["arrays"] = ArrayRecord({"w": Array("float32", (5, 4), kind, b"")})
        return message

    grid.change = spoil
    strategy, *_ = run(
        tmp_path, model, grid=grid, roster=roster, spec=SPEC.replace(min_survivors=3)
    )
    assert strategy.aggregate_.survivors.tolist() == [1, 2, 3]
    assert "cannot be read" in replies_with_errors(grid)[0]


def test_a_node_without_its_files_says_which(tmp_path, model):
    make_nodes(tmp_path)
    (tmp_path / "0" / "roster.json").unlink()
    grid = LoopbackGrid(make_app(change), tmp_path)
    (reply,) = grid.send_and_receive([Message(RecordDict(), 100, MessageType.TRAIN)])
    assert "roster.json" in reply.error.reason


def test_a_training_function_that_changes_a_shape_is_named(tmp_path, model):
    roster = make_nodes(tmp_path)
    app = make_app(lambda partition, name: np.zeros((2, 5, 4)) if name == "w" else 0.0)
    grid = LoopbackGrid(app, tmp_path)
    strategy, *_ = run(tmp_path, model, grid=grid, roster=roster)
    assert strategy.aggregate_ is None
    assert "'w' has shape (2, 5, 4)" in replies_with_errors(grid)[0]


def test_adaptive_clips_are_refused(tmp_path):
    roster = make_nodes(tmp_path)
    with pytest.raises(ValueError, match="adaptive"):
        PrivateFedAvg(SPEC.replace(clip_norm="adaptive"), roster, rounds=1)


def test_sketched_rounds(tmp_path):
    model = {"w": np.zeros(2000, np.float32)}
    spec = RoundSpec(epsilon=3000.0, compression=5, n_bits=30, clip_norm=20.0)
    strategy, result, _ = run(tmp_path, model, spec=spec)
    assert (
        strategy.aggregate_.sketch.shape
        == parts_of(strategy.aggregate_.config)
        .decode(np.zeros(strategy.aggregate_.config.mechanism.padded_dim, np.uint64), 4)
        .shape
    )
    assert result.arrays["w"].numpy().mean() == pytest.approx(0.25, abs=0.1)
