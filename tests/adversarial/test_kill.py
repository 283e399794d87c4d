"""Killed anywhere, a run has charged at least what it released: the ledger writes first.

Children are forked from one warm process and killed with SIGKILL after a random time. Each sum that
is opened leaves a synced line in a log, by a wrapper around the only function that opens it.
"""

import os
import signal
import time

import numpy as np
import pytest

from experiments.training.loop import TrainingConfig, run_training
from sparse_secagg import SparseSecAgg, rounds
from sparse_secagg.accounting import Ledger

CONFIG = TrainingConfig(
    task="digits", rounds=10**6, clients=5, noise_multiplier=1.0, compression=20, private_noise=True
)
ROUND = {"noise_multiplier": 1.0, "decoder": "linear", "compression": 5}


def opened_sums(log):
    return len(log.read_bytes()) if log.exists() else 0


def log_every_opened_sum(log):
    """Write a byte, synced, each time a sum is about to be decoded. For a child process only."""
    original = rounds.Round.decode

    def decode(self, *args, **kwargs):
        with open(log, "ab") as file:
            file.write(b".")
            file.flush()
            os.fsync(file.fileno())
        return original(self, *args, **kwargs)

    rounds.Round.decode = decode


def start(job):
    """Fork and run ``job`` in the child; return the child."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            job()
        finally:
            os._exit(0)
    return child


def run_and_kill(job, seconds):
    """Fork, run ``job`` in the child, kill it after ``seconds``; return whether it was killed."""
    child = start(job)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def seconds_to_the_first_sum(job, log):
    """Time one child until it has opened a sum: what a kill should wait for on this machine."""
    child = start(job)
    begun = time.monotonic()
    while not opened_sums(log) and time.monotonic() < begun + 60:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - begun


def assert_charged_first(job, ledger_path, log, kills, delta=1e-5):
    rng = np.random.default_rng(7)
    longest = 3 * seconds_to_the_first_sum(job, log)
    killed = 0
    for _ in range(kills):
        killed += run_and_kill(job, rng.uniform(0.0, longest))
        charged = Ledger(delta, path=ledger_path).rounds if ledger_path.exists() else 0
        assert charged >= opened_sums(log)
    assert killed >= 0.9 * kills
    assert opened_sums(log) >= 0.2 * kills  # the kills met rounds at work
    # and no run charges without cause: at most one round more for every kill
    assert Ledger(delta, path=ledger_path).rounds <= opened_sums(log) + kills + 1


def check_training(tmp_path, kills):
    run_training(TrainingConfig(task="digits", rounds=1, clients=5, compression=20))  # warm
    folder, log = tmp_path / "run", tmp_path / "log"

    def job():
        log_every_opened_sum(log)
        run_training(CONFIG, output=folder, resume=True)

    assert_charged_first(job, folder / "ledger.sqlite", log, kills)


def check_fit(tmp_path, kills):
    X = np.random.default_rng(0).standard_normal((20, 500)) / 30
    SparseSecAgg(**ROUND).fit(X)  # warm
    path, log = tmp_path / "ledger.sqlite", tmp_path / "log"

    def job():
        log_every_opened_sum(log)
        while True:
            SparseSecAgg(**ROUND, ledger=path).fit(X)

    assert_charged_first(job, path, log, kills)


def test_training_killed_and_resumed_has_charged_first(tmp_path):
    check_training(tmp_path, 10)


def test_rounds_killed_have_charged_first(tmp_path):
    check_fit(tmp_path, 25)


@pytest.mark.slow
def test_training_killed_and_resumed_two_hundred_times(tmp_path):
    check_training(tmp_path, 200)


@pytest.mark.slow
def test_rounds_killed_two_hundred_times(tmp_path):
    check_fit(tmp_path, 200)


def test_the_check_notices_a_charge_that_comes_too_late(tmp_path):
    """Negative control: a ledger that forgets what is not settled has charged too little."""
    X = np.random.default_rng(0).standard_normal((20, 500)) / 30
    SparseSecAgg(**ROUND).fit(X)  # warm
    path, log = tmp_path / "ledger.sqlite", tmp_path / "log"

    class Late:
        delta = 1e-5

        def charge(self, privacy):
            self.privacy = privacy

    def job():
        log_every_opened_sum(log)
        while True:
            late = Late()
            SparseSecAgg(**ROUND, ledger=late).fit(X)
            Ledger(1e-5, path=path).charge(late.privacy)

    with pytest.raises(AssertionError):
        assert_charged_first(job, path, log, 60)
