"""The parameters of a round are declared in one place.

Whoever names one takes it from there: a class inherits the field, a function gets the signature
from ``takes_round_parameters``, and a default is never written down a second time.
"""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Annotated, get_args

import pytest
import typer
from typer.models import OptionInfo

import experiments
import solvers
import sparse_secagg
from experiments.cli.app import app
from sparse_secagg.parameters import NoiseParameters, round_parameters

ROOT = Path(__file__).resolve().parent.parent
PARAMETERS = round_parameters()
#: Words that mean something else too, and where they do.
OTHER_MEANINGS = {
    # an encoder's own size, which the round's `n_rows` and `compression` fill in
    ("sparse_secagg.encoders", "n_rows"),
    ("sparse_secagg.encoders", "compression"),
    ("sparse_secagg.encoders", "layers"),
    ("sparse_secagg.encoders", "encoder"),
    # the noise on the count of an adaptive clip, not on the sketch
    ("sparse_secagg.round.clipping", "noise_multiplier"),
    ("sparse_secagg.round.clipping", "adjacency"),
    ("sparse_secagg.round.clipping", "colluders"),
    # a policy's demand on rounds, and curves of any mechanism
    ("sparse_secagg.round.policy", "adjacency"),
    ("sparse_secagg.agent", "adjacency"),
    ("sparse_secagg.agent", "colluders"),
    ("sparse_secagg.privacy", "adjacency"),
    ("sparse_secagg.privacy", "colluders"),
    ("sparse_secagg.privacy", "rounds"),
    ("sparse_secagg.privacy", "observer"),
    ("sparse_secagg.privacy", "delta"),
    ("sparse_secagg.mechanisms", "adjacency"),
    ("sparse_secagg.mechanisms", "rounds"),
    ("sparse_secagg.mechanisms", "colluders"),
    # a bare sum between parties is decoded without assumptions
    ("sparse_secagg.round.messages.server_decode", "decoder"),
    # what each task was tuned with, where a user leaves it open
    ("experiments.training.tasks.Settings", "clip_norm"),
    ("experiments.training.tasks.Settings", "compression"),
    ("experiments.training.tasks.Settings", "decoder"),
    ("experiments.training.tasks.Settings", "n_bits"),
    ("experiments.training.tasks.Settings", "n_rows"),
    # a solver's own prior, sparsity and rounds
    ("solvers", "prior"),
    ("solvers", "sparsity"),
}


def public_callables():
    """Yield (name, callable) of everything public in the three packages."""
    seen = set()
    for package in (solvers, sparse_secagg, experiments):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if (
                "torch" in info.name
                or "flower" in info.name
                or info.name.endswith("__main__")
                or "._" in info.name
            ):
                continue
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                ours = getattr(value, "__module__", "") == info.name
                if name.startswith("_") or not ours or not callable(value) or id(value) in seen:
                    continue
                seen.add(id(value))
                yield f"{info.name}.{name}", value
                if inspect.isclass(value):
                    for method, function in vars(value).items():
                        function = getattr(function, "__func__", function)
                        if not method.startswith("_") and inspect.isfunction(function):
                            yield f"{info.name}.{name}.{method}", function


def declares(value):
    """Return the parameters of a round for which ``value`` has a default of its own."""
    if inspect.isclass(value) and issubclass(value, NoiseParameters):  # inherits the fields
        return set(PARAMETERS) & set(vars(value).get("__annotations__", {}))
    if getattr(value, "takes_round_parameters", False):
        return set()
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return set()
    return {
        name
        for name, p in signature.parameters.items()
        if name in PARAMETERS and p.default is not p.empty and p.default is not None
    }


def allowed(where, name):
    return any(where.startswith(prefix) and name == word for prefix, word in OTHER_MEANINGS)


def test_nobody_declares_a_default_a_second_time():
    wrong = {}
    for where, value in public_callables():
        if where.startswith("sparse_secagg.parameters"):
            continue
        found = {name for name in declares(value) if not allowed(where, name)}
        # a default that is read from the table is no second declaration
        found = {name for name in found if not _read_from_table(value, name)}
        if found:
            wrong[where] = sorted(found)
    assert not wrong, wrong


def _read_from_table(value, name):
    """Return whether the source of a signature takes this default from the table."""
    if inspect.isclass(value) and name not in vars(value).get("__annotations__", {name}):
        return True  # inherited from a class that is looked at itself
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        return False
    tree = ast.parse(inspect.cleandoc("\n" + source) if source[0] == " " else source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            pairs = list(zip(node.args.kwonlyargs, node.args.kw_defaults))
            places = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            pairs += list(zip(places, node.args.defaults))
            for argument, given in pairs:
                if argument.arg == name and given is not None:
                    return not isinstance(given, ast.Constant)
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) == name:
            return not isinstance(node.value, ast.Constant)
    return False


def test_a_second_declaration_would_be_found():
    def elsewhere(*, epsilon: float = 1.0, n_bits: int = 16) -> None:
        pass

    assert declares(elsewhere) == {"epsilon", "n_bits"}
    assert not _read_from_table(elsewhere, "epsilon")


#: What else parameters of a round might be called: nobody invents a second word.
OTHER_WORDS = {"bits", "rows", "noise", "z", "clip", "solver", "n_clients", "num_clients", "d", "n"}


def commands(application, name="sparse-secagg"):
    """Yield (name, function) of the whole command line."""
    for command in application.registered_commands:
        yield f"{name} {command.name or command.callback.__name__}", command.callback
    for group in application.registered_groups:
        yield from commands(group.typer_instance, f"{name} {group.name}")


def options(function):
    """Yield (name, spellings, default, kind, typer's option) of the options of a command."""
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, option = get_args(parameter.annotation)[:2]
        if isinstance(option, OptionInfo):
            spelt = option.param_decls or (option.default,)
            spelt = [s for s in spelt if isinstance(s, str)] or [f"--{name.replace('_', '-')}"]
            yield name, spelt, parameter.default, kind, option


def wrong_with(function):
    """Return what makes options of a command second declarations of parameters."""
    wrong = []
    for name, spelt, value, kind, option in options(function):
        if name in OTHER_WORDS or {s.strip("-").replace("-", "_") for s in spelt} & OTHER_WORDS:
            wrong.append(f"{name}: another word for a parameter of a round")
        if name in PARAMETERS and f"--{name.replace('_', '-')}" not in spelt:
            wrong.append(f"{name}: spelt {spelt}")
        if name in PARAMETERS and value not in (None, PARAMETERS[name].default):
            wrong.append(f"{name}: a default of its own, {value!r}")
        if int in (kind, *get_args(kind)) and option.parser is None:
            wrong.append(f"{name}: takes 1000 but not 1e3; options.whole parses both")
    return wrong


def test_commands_take_the_parameters_of_a_round_from_the_table():
    found = dict(commands(app))
    assert {c.split()[1] for c in found} >= {
        "plan", "epsilon", "train", "sweep", "compare", "count", "demo", "serve", "join", "identity"
    }  # fmt: skip
    named = [n for f in found.values() for n, *_ in options(f) if n in PARAMETERS]
    assert len(named) > 50
    wrong = {name: w for name, function in found.items() if (w := wrong_with(function))}
    assert not wrong, wrong


def test_options_of_its_own_would_be_found():
    def command(
        bits: Annotated[int, typer.Option(parser=float)] = 16,
        epsilon: Annotated[float | None, typer.Option("--epsilons")] = None,
        n_rows: Annotated[int, typer.Option(parser=float)] = 8,
        draws: Annotated[int | None, typer.Option()] = None,
        seed: Annotated[int, typer.Option(parser=float)] = 0,
    ) -> None:
        pass

    assert [w.split(":")[0] for w in wrong_with(command)] == ["bits", "epsilon", "n_rows", "draws"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_has_a_constraint_that_its_default_meets(name):
    item = PARAMETERS[name]
    item.metadata["constraint"].check(name, item.default)
    assert item.metadata["text"].endswith((".", "."))
