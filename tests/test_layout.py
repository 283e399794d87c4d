"""The floor plan: who may import whom, no way back, no private doors, nothing heavy by accident.

Lazy imports inside functions and imports for type checkers count like all others.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("solvers", "sparse_secagg", "experiments")
FORBIDDEN = {
    "solvers": {"sparse_secagg", "experiments", "benchmarks", "tests"},
    "sparse_secagg": {"experiments", "benchmarks", "tests"},
    "experiments": {"benchmarks", "tests"},
}
#: Rooms of the library, from the ground up: each imports from its own and those before only.
STOREYS = [
    {"siblings", "exceptions", "validation", "frozen", "parts", "parameterised", "containers"},
    {"kernels", "numpy_kernels", "public_randomness"},
    {"private_files", "decoder_texts"},
    {"parameters", "walsh_hadamard", "clipped_rows"},
    {"privacy", "sketches"},
    {"encoders", "mechanisms"},
    {"secagg"},
    {"planning"},
    {"planner"},
    {"round"},
    {"agent", "announcement", "estimator", "counting", "named_arrays"},
    {"transport", "counts", "flower", "torch", "warmup"},
    {"accounting", "rounds", "clipping", "feedback"},  # names that were there first
]
#: Packages whose ``__init__`` names its rooms for type checkers and imports them on first use.
LAZY_DOORS = {"solvers", "sparse_secagg", "experiments"}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules():
    found = {module_name(p): p for package in PACKAGES for p in (ROOT / package).rglob("*.py")}
    assert len(found) > 100
    return found


def imports(path, name):
    """Yield (module, imported name or None) of every import statement, wherever it stands."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            yield from ((base, alias.name) for alias in node.names)


def graph(found):
    """Return which module imports which; ``from package import module`` means the module."""
    edges = {}
    for name, path in found.items():
        targets = set()
        for base, imported in imports(path, name):
            target = f"{base}.{imported}" if f"{base}.{imported}" in found else base
            if target in found and target != name:
                targets.add(target)
        edges[name] = targets
    for door in LAZY_DOORS:
        edges[door] = {t for t in edges[door] if t.endswith(".siblings")}
    return edges


def cycle_in(edges):
    """Return a cycle of the graph as a list of modules, or None (depth-first, three colours)."""
    state, trail = {}, []

    def visit(node):
        state[node] = "open"
        trail.append(node)
        for target in sorted(edges[node]):
            if state.get(target) == "open":
                return [*trail[trail.index(target) :], target]
            if target not in state and (found := visit(target)):
                return found
        state[node] = "done"
        trail.pop()
        return None

    for node in sorted(edges):
        if node not in state and (found := visit(node)):
            return found
    return None


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_follow_the_direction_of_dependency(package):
    for name, path in modules().items():
        if name.split(".")[0] == package:
            wrong = FORBIDDEN[package] & {base.split(".")[0] for base, _ in imports(path, name)}
            assert not wrong, f"{name} imports {wrong}"


def test_there_are_no_cycles():
    assert cycle_in(graph(modules())) is None


def test_a_hidden_cycle_would_be_found():
    edges = graph(modules())
    edges["solvers.operators"] = edges["solvers.operators"] | {"solvers.auto"}
    assert cycle_in(edges) is not None


def test_the_library_is_built_from_the_ground_up():
    storey = {room: i for i, rooms in enumerate(STOREYS) for room in rooms}
    for name, targets in graph(modules()).items():
        if not name.startswith("sparse_secagg."):
            continue
        room = name.split(".")[1].lstrip("_")
        room = room if room in storey else _kernel_owner(room)
        for target in targets:
            if target.startswith("sparse_secagg."):
                below = target.split(".")[1].lstrip("_")
                below = below if below in storey else _kernel_owner(below)
                assert storey[below] <= storey[room], f"{name} imports {target}, which is above it"


def _kernel_owner(room):
    return {
        "row_kernels": "clipped_rows",
        "hash_kernels": "public_randomness",
        "walsh_hadamard_kernels": "walsh_hadamard",
    }[room]


def test_no_private_names_across_modules():
    found = modules()
    for name, path in found.items():
        for base, imported in imports(path, name):
            if base.split(".")[0] not in PACKAGES:
                continue
            private = (imported or "").startswith("_") and not (imported or "").endswith("__")
            assert not private or f"{base}.{imported}" in found, (
                f"{name} takes {imported} of {base}"
            )
            last = base.rpartition(".")[2]
            if last.startswith("_") and not last.startswith("__"):
                owner = base.rpartition(".")[0]
                assert name.startswith(owner), f"{name} imports {base}"


def test_numba_lives_in_kernel_modules_only():
    for name, path in modules().items():
        if any(base.split(".")[0] == "numba" for base, _ in imports(path, name)):
            assert path.stem.endswith("_kernels"), name


def loaded(code, *suspects):
    check = f"{code}\nimport sys; print([m for m in {suspects!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return out.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded("import sparse_secagg", "numba", "sklearn", "scipy") == "[]"


CONFIG = (
    "from sparse_secagg import RoundSpec\n"
    "spec = RoundSpec(epsilon=2.0, encoder={encoder!r})\n"
    "print(spec.config(100, 50, random_state=0).to_json())"
)
MESSAGE = (
    "import numpy as np, sparse_secagg as s\n"
    "policy = s.ClientPolicy(3.0, 1e-3)\n"
    "s.client_encode({config!r}, np.ones(100), policy=policy)"
)


@pytest.mark.parametrize("encoder", ["count_sketch", "hadamard", "identity"])
def test_a_message_needs_neither_scikit_learn_nor_the_heavy_parts_of_scipy(encoder):
    made = [sys.executable, "-c", CONFIG.format(encoder=encoder)]
    config = subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()
    heavy = ("sklearn", "pandas", "joblib", "scipy.optimize", "scipy.stats", "scipy.fft")
    assert loaded(MESSAGE.format(config=config), *heavy) == "[]"
    bare = "import os; os.environ['SPARSE_SECAGG_KERNELS'] = 'numpy'\n"
    everything = ("sklearn", "scipy", "numba", "joblib", "threadpoolctl", "pandas")
    assert loaded(bare + MESSAGE.format(config=config), *everything) == "[]"


def test_a_session_and_an_agent_are_as_light():
    code = "from sparse_secagg import AgentPolicy, ClientAgent, ClientSession, Identity, Roster"
    assert loaded(code, "sklearn", "scipy", "numba", "joblib", "threadpoolctl") == "[]"


def test_a_message_is_encoded_without_the_command_line():
    code = (
        "import numpy as np, sparse_secagg as s; "
        "config = s.RoundSpec(epsilon=2.0).config(100, 50); "
        "s.client_encode(config.to_json(), np.ones(100), policy=s.ClientPolicy(3.0, 1e-3))"
    )
    assert loaded(code, "typer", "rich", "matplotlib", "jinja2", "torch", "dask") == "[]"


def test_the_command_line_says_what_it_needs():
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'typer' else real(name, *a)\n"
        "from experiments.cli import app; app()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs typer" in done.stderr
    assert "pip install 'sparse-secagg[cli]'" in done.stderr


def test_types_are_shipped():
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()


def test_the_walks_in_the_documentation_lead_forward():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for heading in ("## The walk of a vector", "## The walk of a message"):
        walk = text.split(heading)[1].split("\n## ")[0]
        steps = re.findall(r"^\d+\. `([\w/]+\.py)`", walk, flags=re.MULTILINE)
        assert 8 <= len(steps) <= 12
        assert len(set(steps)) == len(steps)
        for step in steps:
            assert (ROOT / step).exists(), step
