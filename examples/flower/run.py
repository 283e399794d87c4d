"""Start a Flower federation on this machine, train privately in it, and kill a node on the way.

    python run.py [--nodes 4] [--rounds 3] [--epsilon 50] [--kill | --simulation] [--plain]

One SuperLink and some SuperNodes run as processes of their own on loopback, as they would on
machines of their own; every node has its folder with an identity, limits and a lifetime budget.
With --simulation, Flower's simulation engine plays the nodes of the same app and folders.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sparse_secagg import AgentPolicy, Roster
from sparse_secagg.flower import PrivateNode

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


def free_port():
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_nodes(folder, n):
    """Make every node's folder, enrol them all, and give each the roster."""
    roster = Roster("digits")
    policy = AgentPolicy(max_epsilon=1000.0, max_delta=1e-5)
    for i in range(n):
        identity = PrivateNode.create(
            folder / f"node-{i}", policy, lifetime_epsilon=1e4, lifetime_delta=1e-5
        )
        roster = roster.add(f"node {i}", identity.public)
    for place in [folder, *(folder / f"node-{i}" for i in range(n))]:
        roster.save(place / "roster.json")


class Federation:
    """A SuperLink and its SuperNodes; leaving the context stops them all."""

    superlink_options, run_options = (), ()

    def __init__(self, folder, n, *, private=True, kill=None, app=HERE):
        self.folder, self.n, self.kill, self.app = folder, n, kill, app
        self.port = free_port()
        self.env = {
            **os.environ,
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PRIVATE_DIGITS": "yes" if private else "no",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self.link, self.nodes = None, []

    def __enter__(self):
        address = f"127.0.0.1:{self.port}"
        self.link = self._start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1",
            "--port", str(self.port), "--disable-runtime-dependency-installation",
            *self.superlink_options,
        )  # fmt: skip
        self._wait_for(self.port)
        self._start_nodes(address)
        config = self.folder / "flwr" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{address}"\n'
            "insecure = true\n"
        )
        return self

    def _start_nodes(self, address):
        for i in range(self.n):
            settings = (
                f'partition-id={i} num-partitions={self.n} private-node="{self.folder}/node-{i}"'
            )
            if i == self.kill:
                settings += f' stalls-at="{self.folder}/stalled"'
            words = ["--insecure", "--superlink", address, "--port", str(free_port())]
            command = ("flower-supernode", *words, "--node-config", settings)
            self.nodes.append(self._start(f"node-{i}", *command))
        if self.kill is not None:
            threading.Thread(target=self._kill_in_training, daemon=True).start()

    def _kill_in_training(self):
        """Kill a node, and all that it started, once it has trained and before it answers."""
        while not (self.folder / "stalled").exists():
            time.sleep(0.1)
        os.killpg(self.nodes[self.kill].pid, signal.SIGKILL)

    def run(self, **settings):
        """Run the app to its end; return what its server wrote."""
        values = " ".join(f"{k}={json.dumps(v)}" for k, v in settings.items())
        results = self.folder / "results.json"
        for name, file in {"roster": "roster.json", "ledger": "ledger.sqlite"}.items():
            values += f' {name}="{self.folder / file}"'
        values += f' results="{results}"'
        done = subprocess.run(
            [
                BIN / "flwr", "run", self.app, "here", "--stream", "--run-config", values,
                *self.run_options,
            ],
            env=self.env, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        (self.folder / "run.log").write_text(done.stdout + done.stderr)
        if not results.exists():
            raise RuntimeError(f"the run failed:\n{(done.stdout + done.stderr)[-3000:]}")
        return json.loads(results.read_text())

    def __exit__(self, *_):
        for process in [*self.nodes, self.link]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name, command, *words):
        log = open(self.folder / f"{name}.log", "w")  # noqa: SIM115
        return subprocess.Popen(
            [BIN / command, *words], env=self.env, stdout=log, stderr=log, start_new_session=True
        )

    @staticmethod
    def _wait_for(port, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.1)
        raise RuntimeError(f"nobody listens at port {port} after {seconds} s")


class Simulation(Federation):
    """A SuperLink that plays the nodes itself, in Flower's simulation engine.

    The engine gives a node no configuration but its number, so that folders are named in the
    environment.
    """

    superlink_options = ("--simulation",)

    def __init__(self, folder, n, **options):
        super().__init__(folder, n, **options)
        self.env["SPARSE_SECAGG_NODE"] = f"{folder}/node-{{partition-id}}"
        self.env["RAY_USAGE_STATS_ENABLED"] = "0"
        engine = f"num-supernodes={n} client-resources-num-cpus=1"
        self.run_options = ("--federation-config", engine)

    def _start_nodes(self, address):
        """Start nothing: the engine does when a run begins."""


def show(found):
    """Print a line for each round."""
    print(f"before: accuracy {found['accuracy'][0]:.3f}")
    for i, (accuracy, seconds) in enumerate(zip(found["accuracy"][1:], found["seconds"]), 1):
        line = f"round {i}: accuracy {accuracy:.3f}, {seconds:.0f} s"
        metrics = found["metrics"].get(str(i), {})
        if "epsilon-server" in metrics:
            line += (
                f", epsilon so far {metrics['epsilon-server']:.3g} against the server, "
                f"{metrics['survivors']} nodes, {metrics['bytes-per-client']} bytes each"
            )
        print(line)


def main():
    """Run the example and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=50.0)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--kill", action="store_true", help="kill the last node in mid-round")
    way.add_argument(
        "--simulation", action="store_true",
        help="Flower's simulation engine plays the nodes (needs flwr[simulation])",
    )  # fmt: skip
    parser.add_argument("--plain", action="store_true", help="Flower's FedAvg, without privacy")
    parser.add_argument("--keep", type=Path, help="Folder for logs, instead of a temporary one")
    options = parser.parse_args()
    if options.simulation and importlib.util.find_spec("ray") is None:
        parser.error("--simulation needs ray: pip install 'flwr[simulation]'")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="private-digits-"))
    folder.mkdir(parents=True, exist_ok=True)
    make_nodes(folder, options.nodes)
    settings = {
        "num-server-rounds": options.rounds, "private": not options.plain,
        "epsilon": options.epsilon,
    }  # fmt: skip
    kind = Simulation if options.simulation else Federation
    kill = options.nodes - 1 if options.kill else None
    with kind(folder, options.nodes, private=not options.plain, kill=kill) as federation:
        found = federation.run(**settings)
    show(found)
    if options.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
