"""Recording survives kill -9 at any moment, and takes no more memory for 4 GB than for 4 MB."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from experiments.recordings.format import npy_header
from experiments.recordings.recording import Recording

ROOT = Path(__file__).resolve().parents[2]

#: Appends rounds whose content follows from their number, and says so after each.
APPENDING = """
import sys
import numpy as np
from experiments.recordings.recording import Recording
rec = Recording.create(sys.argv[1], task="t", exist_ok=True)
start = rec.rounds[-1] + 1 if len(rec) else 0
for k in range(start, start + 10_000):
    rec.append(k, (np.full(3000, k + i) for i in range(20)))
    print(k, flush=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run(code, *arguments):
    process = start(code, *arguments)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return output


def kill_at_random_moments(path, times, seed):
    """Kill a recording process again and again; return how many rounds it acknowledged."""
    rng = random.Random(seed)
    acknowledged = -1
    for _ in range(times):
        process = start(APPENDING, path)
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        lines = process.communicate()[0].split()
        acknowledged = max([acknowledged, *map(int, lines)])
        rec = Recording.open(path)
        # at most the round being written is lost, and one may be there unacknowledged
        assert rec.rounds == list(range(len(rec)))
        assert len(rec) - 1 >= acknowledged
        assert len(rec) - 1 <= acknowledged + 2
        acknowledged = len(rec) - 1
        for k, updates in enumerate(rec):
            np.testing.assert_array_equal(updates, k + np.arange(20)[:, None] + np.zeros(3000))
    return acknowledged + 1


def test_kill_at_random_moments_loses_at_most_the_round_being_written(tmp_path):
    assert kill_at_random_moments(tmp_path / "recording", times=6, seed=0) >= 6


@pytest.mark.slow
def test_kill_at_many_random_moments(tmp_path):
    assert kill_at_random_moments(tmp_path / "recording", times=100, seed=1) >= 100


#: Dies just before its k-th call of the kernel that leaves a trace on disk, for every k.
DYING = """
import os, sys
import numpy as np
from experiments.recordings.recording import Recording

def die_at(k, path):
    calls = 0
    def counted(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > k:
                os._exit(9)
            return function(*args, **kwargs)
        return call
    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    rec = Recording.open(path)
    for number in range(3):
        rec.append(number, np.full((4, 5), number))

for k in range(100):
    path = f"{sys.argv[1]}/{k}"
    if (child := os.fork()) == 0:
        die_at(k, path)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(k, status, flush=True)
    if status == 0:
        break
"""


def test_death_at_every_step_of_an_append_leaves_whole_rounds(tmp_path):
    statuses = [int(line.split()[1]) for line in run(DYING, tmp_path).splitlines()]
    assert statuses[-1] == 0
    assert set(statuses[:-1]) == {9}
    assert len(statuses) > 20
    committed = []
    for k in range(len(statuses)):
        rec = Recording.open(tmp_path / str(k))
        for number, updates in zip(rec.rounds, rec):
            np.testing.assert_array_equal(updates, np.full((4, 5), number))
        committed.append(len(rec))
        rec.append(len(rec), np.ones((4, 5)))  # the next append cleans up
        expected = {"recording.json", *(entry.file for entry in rec.entries)}
        assert set(os.listdir(rec.path)) == expected
    assert committed == sorted(committed)
    assert set(committed) == {0, 1, 2, 3}


# --- memory --------------------------------------------------------------------------------

#: Runs with so much memory for data on top of what importing took; more is a MemoryError.
LIMITED = """
import resource, sys, warnings
import numpy as np
from experiments.recordings.recording import Recording
from sparse_secagg import CountSketchEncoder, PrivacyWarning, SparseSecAgg
warnings.simplefilter("ignore", PrivacyWarning)
SparseSecAgg(compression=10, decoder="linear", simulation_seed=0).fit(np.ones((3, 1000)))

def limit(megabytes):
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) for line in status if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + megabytes * 2**20, -1))

path, n, d = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
"""

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the limit needs /proc and RLIMIT_DATA"
)


def sparse_recording(path, n, d):
    """Make a recording of zeros that takes no space on disk."""
    rec = Recording.open(path)
    rec.append(0, np.zeros((1, d)))
    with (path / "round-000000.npy").open("r+b") as file:
        file.write(npy_header(n, d))
        file.truncate(128 + 4 * n * d)
    document = json.loads((path / "recording.json").read_text())
    document["rounds"][0]["n"] = n
    (path / "recording.json").write_text(json.dumps(document))


@linux_only
def test_opening_and_reading_4_gb_takes_little_memory(tmp_path):
    sparse_recording(tmp_path / "recording", 1000, 10**6)
    code = """
limit(64)
X = Recording.open(path, verify=False)[0]
assert X.nbytes == 4 * 10**9
total = np.zeros(d)
for start in range(0, n, 100):
    total += X[start]
"""
    run(LIMITED + code, tmp_path / "recording", 1000, 10**6)


APPEND_BLOCKS = """
limit(160)
rec = Recording.open(path)
rec.append(0, (np.full((2, d), i, dtype=np.float32) for i in range(n // 2)))
X = rec[0]
rec.append(1, X)
assert rec[1].shape == (n, d)
"""


@linux_only
def test_appending_takes_little_memory(tmp_path):
    run(LIMITED + APPEND_BLOCKS, tmp_path / "recording", 60, 10**6)  # 240 MB a round


@linux_only
@pytest.mark.slow
def test_appending_4_gb_takes_as_little_memory(tmp_path):
    run(LIMITED + APPEND_BLOCKS, tmp_path / "recording", 1000, 10**6)


FIT = """
limit(int(sys.argv[4]))
rec = Recording.open(path, verify=False)
encoder = CountSketchEncoder(compression=100, n_rows=1)
estimator = SparseSecAgg(encoder, decoder="linear", simulation_seed=0)
estimator.fit(rec)
assert estimator.n_survivors_ == n
"""


@linux_only
def test_a_round_is_fitted_in_blocks(tmp_path):
    # 400 MB as it is, 800 MB as 64-bit floats
    sparse_recording(tmp_path / "recording", 100, 10**6)
    run(LIMITED + FIT, tmp_path / "recording", 100, 10**6, 360)


@linux_only
@pytest.mark.slow
def test_4_gb_are_verified_and_fitted_in_the_same_memory(tmp_path):
    sparse_recording(tmp_path / "recording", 1000, 10**6)
    run(LIMITED + FIT, tmp_path / "recording", 1000, 10**6, 360)
    message = run(
        LIMITED
        + """
limit(64)
try:
    Recording.open(path).verify()
except ValueError as error:
    print(error)
""",
        tmp_path / "recording",
        1000,
        10**6,
    )
    assert "differs from its checksum" in message  # all of it was read
