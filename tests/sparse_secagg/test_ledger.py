"""The ledger as a file: written first, shared, never forgotten, never split."""

import copy
import math
import multiprocessing
import pickle
import sqlite3
import stat

import numpy as np
import pytest
from sklearn.base import clone

from sparse_secagg import DiscreteGaussian, PrivacyWarning, SparseSecAgg
from sparse_secagg.accounting import Ledger
from sparse_secagg.privacy import Sampling
from sparse_secagg.privacy.conversion import stated
from sparse_secagg.secagg import BelowThresholdError, MaskedSecAgg

X = np.random.default_rng(0).standard_normal((30, 200)) / 20


def privacy(noise_multiplier=4.0, **changes):
    mechanism = DiscreteGaussian(noise_multiplier=noise_multiplier, n_bits=20)
    mechanism.calibrate(30, 10)
    return mechanism.privacy(**changes)


def test_charges_survive_the_process_and_add_up(tmp_path):
    path = tmp_path / "ledger.sqlite"
    cost = privacy(colluders=10, sampling=Sampling(30, 3000))
    Ledger(1e-5, path=path).charge(cost, rounds=3)
    again = Ledger(1e-5, path=path)
    again.charge(cost)
    for observer in ("server", "colluders", "release"):
        assert again.epsilon(observer) == pytest.approx(cost.epsilon(observer, rounds=4), rel=1e-12)
    assert again.rounds == 4
    assert again.epsilon("release") < again.epsilon("server") < again.epsilon("colluders")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_settled_charge_replaces_the_intended_one(tmp_path):
    ledger = Ledger(1e-5, path=tmp_path / "ledger.sqlite")
    number = ledger.charge(privacy(n_survivors=20))
    assert ledger.epsilon() == privacy(n_survivors=20).epsilon()
    ledger.settle(number, privacy(n_survivors=30))
    assert ledger.epsilon() == privacy(n_survivors=30).epsilon()
    assert ledger.rounds == 1
    with pytest.raises(ValueError, match="number=7"):
        ledger.settle(7, privacy())


def test_a_key_is_charged_once():
    ledger = Ledger(1e-5)
    first = ledger.charge(privacy(), key="round 1")
    assert ledger.charge(privacy(), key="round 1") == first
    ledger.charge(privacy(), key="round 2")
    ledger.charge(privacy())
    assert ledger.rounds == 3


def test_rounds_left_follow_the_last_charge():
    ledger = Ledger(1e-5)
    ledger.charge(privacy(20.0), rounds=4)
    left = ledger.rounds_left(2.0)
    assert privacy(20.0).rounds_within(2.0) == 4 + left


def charge_many(path):
    for _ in range(20):
        Ledger(1e-5, path=path).charge(privacy())


def test_several_processes_share_one_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=charge_many, args=(path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert Ledger(1e-5, path=path).rounds == 60


def test_one_ledger_is_about_one_kind_of_neighbours(tmp_path):
    ledger = Ledger(1e-5, path=tmp_path / "l.sqlite")
    ledger.charge(privacy())
    other = DiscreteGaussian(noise_multiplier=4.0, n_bits=20, adjacency="replace_one")
    other.calibrate(30, 10)
    with pytest.raises(ValueError, match="adjacency='replace_one' differs from 'zero_out'"):
        Ledger(1e-5, path=tmp_path / "l.sqlite").charge(other.privacy())
    assert ledger.rounds == 1


def test_a_ledger_in_memory_stays_in_its_process():
    ledger = Ledger(1e-5)

    def charge(queue):
        try:
            ledger.charge(privacy())
        except RuntimeError as error:
            queue.put(str(error))

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=charge, args=(queue,))
    child.start()
    assert "give it a path" in queue.get(timeout=60)
    child.join()


def test_a_relative_path_is_one_account_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(1e-5, path="ledger.sqlite")
    ledger.charge(privacy())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickle.dumps(ledger)).rounds == ledger.rounds == 1


def test_a_copy_is_the_same_account(tmp_path):
    for ledger in (Ledger(1e-5), Ledger(1e-5, path=tmp_path / "l.sqlite")):
        for same in (copy.copy(ledger), copy.deepcopy(ledger)):
            same.charge(privacy())
        assert ledger.rounds == 2
    estimator = clone(SparseSecAgg(ledger=ledger, decoder="linear", noise_multiplier=4.0))
    estimator.fit(X)
    assert ledger.rounds == 3
    assert pickle.loads(pickle.dumps(ledger)).rounds == 3
    with pytest.raises(TypeError, match="path"):
        pickle.dumps(Ledger(1e-5))


def test_what_is_no_ledger_is_refused(tmp_path):
    text = tmp_path / "text"
    text.write_text("not a database, certainly not one" * 99)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE guests (name TEXT)")
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(ValueError, match="is not a ledger"):
            Ledger(1e-5, path=path)
        assert path.read_bytes() == before
    Ledger(1e-5, path=tmp_path / "mine")
    with pytest.raises(ValueError, match=r"delta=1e-06 differs from delta=1e-05"):
        Ledger(1e-6, path=tmp_path / "mine")
    with pytest.raises(ValueError, match="orders"):
        Ledger(1e-5, [2.0, 3.0], path=tmp_path / "mine")
    with pytest.raises(ValueError, match="cannot be written"):
        Ledger(1e-5, path=tmp_path / "missing" / "ledger")
    with pytest.raises(ValueError, match="use one delta"):
        Ledger(1e-6).charge(privacy())


# -- fit ----------------------------------------------------------------------------------------


def test_fit_charges_what_it_reports(tmp_path):
    path = tmp_path / "ledger.sqlite"
    options = {"decoder": "linear", "noise_multiplier": 4.0, "n_bits": 20}
    first = SparseSecAgg(ledger=path, **options).fit(X)
    assert Ledger(1e-5, path=path).epsilon() == first.epsilon_
    second = SparseSecAgg(ledger=str(path), secagg="masked", **options).fit(X, dropouts=[1, 2])
    ledger = Ledger(1e-5, path=path)
    assert ledger.rounds == 2
    np.testing.assert_allclose(ledger._total().curves[0], first.rdp_ + second.rdp_, rtol=1e-12)
    with pytest.raises(ValueError, match="delta=1e-05 of the ledger"):
        SparseSecAgg(ledger=Ledger(1e-5), delta=1e-6, **options).fit(X)


def test_a_round_that_fails_at_the_threshold_stays_charged_at_worst():
    """Nothing was opened, but the ledger need not know: it counts intents."""
    ledger = Ledger(1e-5)
    estimator = SparseSecAgg(
        secagg=MaskedSecAgg(threshold=20), ledger=ledger, decoder="linear", noise_multiplier=4.0
    )
    with pytest.raises(BelowThresholdError):
        estimator.fit(X, dropouts=range(15))
    assert ledger.rounds == 1
    assert not hasattr(estimator, "mean_")


# -- survivors ----------------------------------------------------------------------------------


def test_min_survivors_sizes_the_noise_and_is_insisted_on():
    estimator = SparseSecAgg(epsilon=1.0, min_survivors=20, decoder="linear", n_bits=20)
    assert estimator.fit(X, dropouts=range(10)).epsilon_ == pytest.approx(1.0, abs=1e-6)
    assert estimator.fit(X).epsilon_ < 0.9
    ledger = Ledger(1e-5)
    with pytest.raises(BelowThresholdError, match="19 clients survived.*min_survivors=20"):
        SparseSecAgg(epsilon=1.0, min_survivors=20, decoder="linear", ledger=ledger).fit(
            X, dropouts=range(11)
        )
    assert ledger.rounds == 0  # known before anything was opened


def test_without_min_survivors_the_realised_epsilon_is_told():
    estimator = SparseSecAgg(epsilon=1.0, decoder="linear", n_bits=20)
    with pytest.warns(PrivacyWarning, match=r"1 of 30 clients survived: epsilon is 6\.\d+ .*above"):
        estimator.fit(X, dropouts=range(1, 30))
    assert estimator.epsilon_ > 6
    assert estimator.result_.observer == "the server"
    assert stated(estimator.epsilon_) in str(estimator.result_)


def test_colluders_are_named_and_paid_for():
    plain = SparseSecAgg(epsilon=1.0, decoder="linear", n_bits=20).fit(X)
    wary = SparseSecAgg(epsilon=1.0, colluders=20, decoder="linear", n_bits=20).fit(X)
    assert wary.epsilon_ == pytest.approx(1.0, abs=1e-6)
    assert wary.noise_std_ == pytest.approx(plain.noise_std_ * math.sqrt(3), rel=0.01)
    assert "20 colluding clients" in wary.result_.observer
    assert wary.privacy_.epsilon("server") < 0.6
    instance = SparseSecAgg(mechanism=DiscreteGaussian(epsilon=1.0, n_bits=20), colluders=20)
    assert instance.fit(X).config_.mechanism.noise_shares == 10
    with pytest.raises(ValueError, match=r"adjacency='replace_one' is not used"):
        SparseSecAgg(mechanism=DiscreteGaussian(epsilon=1.0), adjacency="replace_one").fit(X)
    with pytest.raises(ValueError, match=r"epsilon=0\.5 is not used.*epsilon is 1\.0"):
        SparseSecAgg(mechanism=DiscreteGaussian(epsilon=1.0), epsilon=0.5).fit(X)
    with pytest.raises(ValueError, match="colluders=30 leave no honest client"):
        SparseSecAgg(colluders=30).fit(X)
    with pytest.warns(PrivacyWarning, match="epsilon is inf"):
        lost = SparseSecAgg(epsilon=1.0, colluders=20, decoder="linear", n_bits=20).fit(
            X, dropouts=range(15)
        )
    assert lost.epsilon_ == math.inf


def test_a_trusted_server_is_named():
    fitted = SparseSecAgg(mechanism="central", epsilon=1.0, decoder="linear").fit(X)
    assert fitted.epsilon_ == pytest.approx(1.0, abs=1e-6)
    assert fitted.privacy_.epsilon("server") == math.inf
    assert "trusted" in str(fitted.result_)
