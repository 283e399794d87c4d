"""What a command says of options that are wrong, and how it ends when it is interrupted."""

import contextlib
import errno
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from sparse_secagg import Identity, Roster

COUNT = "count sales.csv --user user --item item --domain list.txt"
SERVE = "serve --round spec.json --roster roster.json"
JOIN = (
    "join --server 127.0.0.1:1 --identity ann.json --roster roster.json --vector x.npy "
    "--budget ann.sqlite --max-epsilon 1"
)
SWEEP = "sweep --axis sparsity=5 --dim 100 --clients 10 --seeds 1 --jobs 1 --decoder linear"
#: A command line, and the option, the value and the remedy that its message has to name.
WRONG = {
    f"{COUNT} --output taken": ["--output taken", "choose another path"],
    f"{COUNT} --output taken/sub": ["--output taken/sub", " path"],
    f"{COUNT} --epsilon much": ["--epsilon", "much must be a number"],
    f"{COUNT} --top 0": ["--top", "0 must be at least 1"],
    f"{COUNT} --max-weight 3": ["--max-weight 3.0", "needs --weight"],
    f"{COUNT} --candidates list.txt": ["candidates", "list.txt", "leave --candidates out"],
    f"{COUNT} --output sales.csv": ["--output sales.csv", "choose another path"],
    f"{COUNT} --epsilon -1": ["--epsilon -1.0 must be a finite positive number"],
    f"{COUNT} --max-items 0": ["--max-items 0 must be"],
    f"{COUNT} --ledger sales.csv": ["--ledger sales.csv", "give another path"],
    f"{COUNT} --ledger taken": ["--ledger taken", "give another path"],
    f"{COUNT} --weight item --max-weight heavy": ["--max-weight", "heavy must be a number"],
    f"{COUNT} --prior scores:nobody.csv": ["--prior", "scores:nobody.csv", "check the path"],
    f"{COUNT} --prior list.txt": ["--prior", "list.txt must be scores:FILE"],
    f"{COUNT.replace('list.txt', 'nobody.txt')}": ["--domain nobody.txt", "one per line", "2**17"],
    "count sales.csv --user user --item item": ["--domain", "one per line", "2**17", "open"],
    "count nobody.csv --user user --item item --domain list.txt": ["table nobody.csv", "path of"],
    "count sales.csv --user who --item item --domain list.txt": ["'who'", "'user', 'item'"],
    "count latin.csv --user user --item item --domain list.txt": ["latin.csv", "UTF-8", "save"],
    "count no-rows.csv --user user --item item --domain list.txt": ["no rows"],
    "count empty.txt --user user --item item --domain list.txt": ["empty.txt is empty", "columns"],
    "count sales.csv --user user --item item --domain empty.txt": ["domain (empty.txt)", "one per"],
    "plan --dim 0 --clients 10": ["--dim", "0 must be at least 1"],
    "plan --dim 10 --clients 10 --plot taken/x.png": ["--plot taken/x.png", " path"],
    "plan --dim 10 --clients 10 --plot x.txt": ["--plot x.txt must end in", ".png"],
    "plan --dim 10 --clients 10 --decoder lasso": ["--decoder lasso", "needs sparsity"],
    "plan --dim 10 --clients 10 --compression 0.5": ["--compression 0.5 must be a finite number"],
    "plan --dim 10 --clients 10 --n-bits 99": ["--n-bits 99 must be an integer from 1 to 63."],
    "plan --dim 10 --clients 100 --population 10": ["--population 10 must", "--clients 100"],
    "plan --dim 10 --clients 10 --epsilon 1 --noise-multiplier 1": ["not both"],
    "epsilon --clients 0": ["--clients", "0 must be at least 1"],
    "epsilon --clients 10 --output taken": ["--output taken", "choose another path"],
    "identity new taken": ["path taken", "choose another path"],
    "identity show nobody.json": ["path nobody.json", "check the path"],
    "identity enrol roster.json bob xyz": ["key xyz", "hexadecimal"],
    "identity enrol taken bob 00": ["taken", "holds no roster", "identity enrol"],
    "budget taken/ann.sqlite --epsilon 8 --delta 1e-5": ["path taken/ann.sqlite", " path"],
    "budget nobody.sqlite": ["nobody.sqlite", "--epsilon 8 --delta 1e-5"],
    f"{SERVE} --corrupt -1": ["--corrupt", "-1 must be a fraction"],
    f"{SERVE} --dropout 1": ["--dropout", "1 must be a fraction"],
    "serve --round typo.json --roster roster.json": ["--round typo.json", "epsilonn"],
    "serve --round negative.json --roster roster.json": ["--round negative.json", "epsilon=-1"],
    f"{SERVE} --port 99999": ["--port", "99999", "from 0 to 65535"],
    f"{SERVE} --seconds -1": ["--seconds", "-1 must be above 0"],
    f"{SERVE} --host 192.0.2.1 --port 0": ["--host 192.0.2.1", "choose another address"],
    f"{SERVE} --host 0.0.0.0": ["--host 0.0.0.0", "--name", "certificate is made for it"],
    f"{SERVE} --output taken/mean.npy": ["--output taken/mean.npy", " path"],
    f"{SERVE} --certificate taken": ["--certificate taken", "make_certificate"],
    "serve --round taken --roster roster.json": ["--round taken", "not JSON"],
    "serve --round latin.csv --roster roster.json": ["--round latin.csv", "UTF-8"],
    "serve --round spec.json --roster nobody.json": ["--roster nobody.json", "check the path"],
    JOIN.replace("x.npy", "taken"): ["--vector taken", "np.save"],
    JOIN.replace("x.npy", "matrix.npy"): ["--vector matrix.npy", "one vector"],
    JOIN.replace("x.npy", "nan.npy"): ["--vector nan.npy", "finite"],
    JOIN.replace("ann.sqlite", "nobody.sqlite"): ["--budget nobody.sqlite", "sparse-secagg budget"],
    f"{JOIN} --corrupt 1": ["--corrupt", "1 must be a fraction"],
    f"{JOIN} --state taken/x": ["--state taken/x", " path"],
    f"{JOIN} --certificate nothing": ["--certificate nothing", "make_certificate"],
    "train --output taken/sub": ["--output taken/sub", " path"],
    "train --jobs 0": ["--jobs", "0 must be at least 1"],
    "train --client-rate fast": ["--client-rate", "fast must be a number"],
    "train --clip-norm often": ["--clip-norm often", "adaptive"],
    "train --task digit": ["--task digit", "Did you mean 'digits'?"],
    "train --decoder amp --prior scores:nobody.csv": ["--prior", "nobody.csv", "check the path"],
    f"{SWEEP} --slack wide": ["--slack", "wide must be a number"],
    f"{SWEEP} --output taken": ["--output taken", "Choose another"],
    f"{SWEEP} --store taken": ["--store taken", "Choose another"],
    f"{SWEEP} --axis sparsity=7": ["--axis sparsity", "twice"],
    f"{SWEEP} --recorded-round 1": ["--recorded-round 1", "--recording"],
    f"{SWEEP} --set foo=1": ["foo=1: synthetic means have no such parameter"],
    f"{SWEEP} --decoder lasoo": ["lasoo", "did you mean"],
    f"{SWEEP} --epsilon -2": ["--epsilon -2.0 must be"],
    f"{SWEEP} --recording nobody": ["nobody is not there", "train --record"],
    "sweep --task digits --axis compression=2 --dim 5": ["training runs have no", "--dim 5"],
    "compare nobody": ["nobody is not there", "train --record"],
    "compare taken": ["taken", "a recording is a folder"],
    "compare recorded.npy --output taken": ["--output taken", "Choose another"],
    "compare recorded.npy --round first": ["--round", "first must be a whole number"],
    "compare recorded.npy --round 7": ["round 7", "holds 1 round"],
    "compare recorded.npy --epsilon -1": ["--epsilon -1.0 must be"],
    "compare recorded.npy --epsilon some": ["--epsilon some must be a number"],
    "reproduce lemmas --output taken": ["--output taken", "choose another path"],
    "sweep --axis sparsity=5 --seeds 0": ["--seeds", "0 must be at least 1"],
    "demo --output taken": ["--output taken", "choose another path"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the files that the command lines name, as the current one."""
    monkeypatch.chdir(tmp_path)
    identity = Identity.new()
    identity.save(tmp_path / "ann.json")
    roster = Roster("test").add("ann", identity.public).add("bob", Identity.new().public)
    roster.add("cas", Identity.new().public).save(tmp_path / "roster.json")
    np.save("x.npy", np.zeros(10))
    np.save("matrix.npy", np.zeros((3, 4)))
    np.save("nan.npy", np.full(10, np.nan))
    np.save("recorded.npy", np.ones((3, 4)))
    (tmp_path / "latin.csv").write_bytes("user,item\n1,café\n".encode("latin-1"))
    spec = '{"dim": 10, "epsilon": 1.0, "n_bits": 24, "encoder": "identity"}'
    for name, text in {
        "sales.csv": "user,item\n1,tea\n2,milk\n",
        "list.txt": "tea\nmilk\n",
        "empty.txt": "",
        "no-rows.csv": "user,item\n",
        "typo.json": '{"dim": 10, "epsilonn": 1.0}',
        "negative.json": '{"dim": 10, "epsilon": -1}',
        "taken": "a file of the user's own, which stays as it is",
        "spec.json": spec,
    }.items():
        (tmp_path / name).write_text(text)
    CliRunner().invoke(app, ["budget", "ann.sqlite", "--epsilon", "8", "--delta", "1e-5"])
    return tmp_path


@pytest.mark.parametrize("line", WRONG)
def test_message_names_option_value_and_remedy(folder, line):
    taken = (folder / "taken").read_text()
    run = CliRunner(env={"COLUMNS": "400"}).invoke(app, shlex.split(line))
    assert run.exit_code == 2, run.output
    for part in WRONG[line]:
        assert part in run.output
    assert "Errno" not in run.output
    assert (folder / "taken").read_text() == taken


def test_a_place_that_can_be_written_is_left_as_it_was(folder):
    run = CliRunner().invoke(app, [*shlex.split(SERVE), "--port", "0", "--seconds", "0.01"])
    assert run.exit_code == 1
    assert "reveals nothing" in run.output
    assert not (folder / "mean.npy").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize(
    ("line", "first", "begun"),
    [
        (f"{SERVE} --port 0", b"listening", "server.pem"),
        ("train --task digits-small --rounds 9999", b"Not private", "train-output/checkpoint.npz"),
    ],
)
def test_an_interrupted_command_ends_with_130(folder, line, first, begun):
    child = subprocess.Popen(
        [sys.executable, "-m", "experiments.cli", *shlex.split(line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert child.stdout.readline().startswith(first)
        while child.poll() is None and not (folder / begun).exists():
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130, output
    assert b"Traceback" not in output


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups like these")
def test_an_interrupted_sweep_says_what_is_kept(folder):
    line = "sweep --axis compression=2,5,10 --dim 500 --clients 50 --seeds 400 --jobs 2 --output s"
    child = subprocess.Popen(
        [sys.executable, "-m", "experiments.cli", *shlex.split(line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def kept():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(store)) as file:
            return file.execute("SELECT count(*) FROM results").fetchone()[0]
        return 0

    store = folder / "s" / "results.sqlite"
    try:
        while child.poll() is None and not (store.exists() and kept()):
            time.sleep(0.1)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130, output
    assert b"Traceback" not in output
    assert f"interrupted: {kept()} of ".encode() in output


def test_what_fails_on_the_way_is_no_mistake_of_the_command_line(folder, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere/else")

    monkeypatch.setattr("sparse_secagg.PrivateCounts.to_csv", fail)
    options = ["--output", "out", "--max-items", "1"]
    run = CliRunner().invoke(app, [*shlex.split(COUNT), *options])
    assert run.exit_code == 1
    assert "somewhere/else" in run.output
