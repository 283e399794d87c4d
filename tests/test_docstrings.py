"""Every public name says what it takes, gives and raises, shows itself, and names its kin."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
validation = pytest.importorskip("numpydoc.validate")
validate, Validator = validation.validate, validation.Validator

spec = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "public_names.py")
public_names = importlib.util.module_from_spec(spec)
sys.modules["public_names"] = public_names
spec.loader.exec_module(public_names)

#: What numpydoc asks for and this project does not: a second paragraph in every docstring, and
#: keyword-only parameters in the order of the signature (they are declared once, for all holders).
NOT_ASKED = {"ES01", "PR03"}
#: What typing gives the constructor of a protocol, which nobody calls.
OF_A_PROTOCOL = {"*args", "**kwargs"}
NAMES = [
    f"{module}.{name}"
    for module, _, _ in public_names.MODULES
    if public_names.is_importable(module)
    for name, _ in public_names.public_names(module)
] + list(public_names.decoders().values())


def complaints(name):
    """Return what numpydoc finds wrong. A description may begin with a symbol, such as ε or d/m."""
    return [
        f"{code}: {text}"
        for code, text in validate(name)["errors"]
        if code not in NOT_ASKED
        and not (code == "PR08" and _begins_with_a_symbol(name, text))
        and not (code == "PR01" and _is_of_a_protocol(name, text))
    ]


def _is_of_a_protocol(name, text):
    named = set(re.findall(r"'([^']+)'", text))
    return named == OF_A_PROTOCOL and getattr(Validator._load_obj(name), "_is_protocol", False)


def _begins_with_a_symbol(name, text):
    parameter = text.split('"')[1]
    described = validate_parameters(name)[parameter]
    word = described.split()[0].strip("*,.:;()")
    return not word.isascii() or not word.isalpha() or len(word) == 1


def validate_parameters(name):
    documented = Validator(validation.get_doc_object(Validator._load_obj(name))).doc_parameters
    return {key: " ".join(lines) for key, (_, lines) in documented.items()}


@pytest.mark.parametrize("name", NAMES)
def test_docstring_is_complete(name):
    assert not complaints(name)


def test_an_incomplete_docstring_would_be_found():
    assert any(text.startswith("SA01") for text in complaints("json.dumps"))


def test_every_public_module_is_listed():
    packages = {module.partition(".")[0] for module, _, _ in public_names.MODULES}
    assert packages == {"sparse_secagg", "solvers", "experiments"}
