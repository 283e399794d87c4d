"""Any number of workers gives what one process gives, bit for bit, and rows stay where they are."""

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse as sp

from sparse_secagg import (
    AdaptiveClip,
    MaskedSecAgg,
    PrivacyWarning,
    RoundSpec,
    SparseSecAgg,
    ThresholdFeedback,
)
from sparse_secagg.exceptions import ClusterError
from sparse_secagg.mechanisms.randomness import PrivateRandomness, SimulationRandomness
from sparse_secagg.privacy import Ledger

da = pytest.importorskip("dask.array")
N, D = 61, 300


@pytest.fixture(scope="module")
def X():
    rows = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32) / 20
    rows[3, 7], rows[40] = np.nan, 100 * rows[40]
    return rows


def run(X, spec=None, **settings):
    spec = RoundSpec(epsilon=5.0, n_bits=20, compression=4) if spec is None else spec
    settings = {"random_state": 1, "simulation_seed": 2, "diagnostics": True} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return spec.run(X, **settings)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.sketch, expected.sketch)
    np.testing.assert_array_equal(found.survivors, expected.survivors)
    assert found.privacy == expected.privacy
    mine, its = found.diagnose(), expected.diagnose()
    for name in ("n_nonfinite", "n_clipped", "n_sketch_clipped", "n_rejected", "n_wrapped"):
        assert getattr(mine, name) == getattr(its, name)
    assert mine.n_nonfinite == 1
    assert mine.n_clipped >= 1
    assert mine.clipping_error == pytest.approx(its.clipping_error)


@pytest.mark.parametrize("encoder", ["count_sketch", "hadamard", "identity", "gaussian"])
@pytest.mark.parametrize("chunks", [(1, D), (16, 100), (50, D), ((0, 40, 21), D)])
def test_blocks_of_any_size_give_the_same_sum(X, encoder, chunks):
    compression = 1 if encoder == "identity" else 4
    spec = RoundSpec(epsilon=5.0, n_bits=20, encoder=encoder, compression=compression)
    assert_same(run(da.from_array(X, chunks=chunks), spec), run(X, spec))


@pytest.mark.parametrize("secagg", ["ideal", MaskedSecAgg(threshold=30, masks="seeded")])
def test_weights_and_dropouts_reach_their_clients(X, secagg):
    spec = RoundSpec(epsilon=5.0, n_bits=20, compression=4, secagg=secagg)
    given = {"sample_weight": np.linspace(0.2, 1.5, N), "dropouts": [0, 17, 60]}
    expected = run(X, spec, **given)
    assert expected.n_survivors == N - 3
    assert_same(run(da.from_array(X, chunks=(9, D)), spec, **given), expected)
    assert_same(run(X, spec, n_jobs=2, **given), expected)


def test_adaptive_clip_and_feedback_move_as_in_one_process(X):
    spec = RoundSpec(
        epsilon=5.0, n_bits=20, compression=4, clip_norm=AdaptiveClip(0.5),
        feedback=ThresholdFeedback(0.3),
    )  # fmt: skip
    here, there = run(X, spec), run(da.from_array(X, chunks=(13, D)), spec)
    for _ in range(2):
        assert there.clip.current == here.clip.current != 0.5
        np.testing.assert_array_equal(there.feedback.error_, here.feedback.error_)
        here = run(X, spec, previous=here)
        there = run(da.from_array(X, chunks=(13, D)), spec, previous=there)
    assert_same(there, here)


def test_sparse_blocks_take_the_sparse_encoder(X):
    rows = sp.csr_array(np.where(np.abs(X) <= 0.08, 0, X))
    lazy = da.from_array(np.asarray(rows.todense()), chunks=(20, D)).map_blocks(sp.csr_matrix)
    assert lazy._meta.format == "csr"
    spec = RoundSpec(epsilon=5.0, n_bits=20, compression=4)
    expected = run(rows, spec)
    assert expected.config.encoder["name"] == "count_sketch"
    assert_same(run(lazy, spec), expected)


@pytest.mark.parametrize("kind", ["array", "memmap", "sparse", "sliced"])
def test_jobs_take_whatever_is_sliced_by_rows(X, kind, tmp_path):
    given = X
    if kind == "memmap":
        np.save(tmp_path / "rows.npy", X)
        given = np.load(tmp_path / "rows.npy", mmap_mode="r")
    elif kind == "sparse":
        given = sp.csr_array(X)
    elif kind == "sliced":
        given = Sliced(X)
    assert_same(run(given, n_jobs=3), run(given))


class Sliced:
    """Rows that are made when they are asked for, as those of a recording are."""

    def __init__(self, rows):
        self.shape, self._rows = rows.shape, rows

    def __getitem__(self, rows):
        return self._rows[rows].copy()


def test_jobs_run_where_joblib_is_told_to(X):
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        assert_same(run(Sliced(X), n_jobs=2), run(X))


def test_two_dask_workers_give_the_same_and_say_how_far_they_are(X):
    distributed = pytest.importorskip("distributed")
    told = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        lazy = da.from_array(X, chunks=(4, D))
        found = run(lazy, progress=lambda done, n: told.append((done, n)))
        seen = {w for keys in client.who_has().values() for w in keys}
    assert_same(found, run(X))
    assert told[-1] == (N, N)
    assert told == sorted(set(told))
    assert seen <= set(cluster.scheduler_info["workers"]) or not seen


def test_rows_are_never_gathered(X, monkeypatch):
    lazy = da.from_array(X, chunks=(10, D))

    def gathered(*args, **kwargs):
        raise AssertionError("the rows came to the caller")

    for name in ("__array__", "compute", "persist"):
        monkeypatch.setattr(da.Array, name, gathered)
    fitted = SparseSecAgg(epsilon=5.0, n_bits=20).fit(lazy)
    assert fitted.n_features_in_ == D
    assert fitted.n_survivors_ == N


def test_blocks_of_unknown_length_are_refused_with_a_remedy(X):
    lazy = da.from_array(X, chunks=(10, D))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        RoundSpec(epsilon=5.0).run(lazy[lazy[:, 0] > 0])


def test_a_dead_scheduler_is_noticed_before_anything_is_charged(X):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None)
    client = distributed.Client(cluster)
    try:
        cluster.close()
        ledger = Ledger(1e-5)
        with pytest.raises(ClusterError, match="dask scheduler"):
            RoundSpec(epsilon=5.0, n_bits=20).run(da.from_array(X, chunks=(10, D)), ledger=ledger)
        assert ledger.rounds == 0
    finally:
        client.close()


@pytest.mark.slow
def test_a_scheduler_killed_in_mid_round_ends_it_within_seconds(X):
    distributed = pytest.importorskip("distributed")
    with subprocess.Popen(
        [sys.executable, "-c", _SCHEDULER], stdout=subprocess.PIPE, text=True
    ) as scheduler:
        address = scheduler.stdout.readline().strip()
        client = distributed.Client(address, timeout=30)
        killed = []

        def kill(done, n):
            if not killed:
                os.kill(scheduler.pid, signal.SIGKILL)
                killed.append(time.monotonic())

        lazy = da.from_array(X, chunks=(1, D)).map_blocks(_slowly, meta=X[:0])
        with pytest.raises(ClusterError, match="stays charged"):
            RoundSpec(epsilon=5.0, n_bits=20).run(lazy, progress=kill)
        assert time.monotonic() - killed[0] < 60
        client.close(timeout=1)


_SCHEDULER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


def _slowly(rows):
    time.sleep(0.3)
    return rows


@pytest.mark.parametrize("sizes", [[7], [3, 4], [1, 0, 2, 4]])
def test_split_randomness_spawns_what_the_whole_would_have(sizes):
    whole, split = SimulationRandomness(5, (1,)), SimulationRandomness(5, (1,))
    whole.spawn(2), split.spawn(2)
    parts = split.split(sizes)
    found = [s for size, part in zip(sizes, parts) for s in part.spawn(size)]
    assert [s.path for s in found] == [s.path for s in whole.spawn(7)]
    assert split.spawn(1)[0].path == whole.spawn(1)[0].path


def test_private_randomness_takes_a_new_key_wherever_it_goes():
    parts = PrivateRandomness().split([3, 3])
    copies = [pickle.loads(pickle.dumps(parts[0])) for _ in range(2)]
    streams = [s for part in [*parts, *copies] for s in part.spawn(3)]
    assert len({s.words(2).tobytes() for s in streams}) == len(streams)
