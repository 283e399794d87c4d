import keyword

import numpy as np
import pytest

from experiments.datasets import ClientSets, public_names, python_identifiers
from experiments.datasets.embedded import _identifiers


def test_sets_become_unit_rows_in_alphabetical_order():
    data = ClientSets.from_sets({"b": {"y", "x"}, "a": {"z"}, "empty": set()})
    assert data.clients == ["a", "b", "empty"]  # how many clients there are is public
    assert data.vocabulary == ["x", "y", "z"]
    half = 0.5**0.5
    np.testing.assert_allclose(data.presence.toarray(), [[0, 0, 1], [half, half, 0], [0, 0, 0]])


def test_no_items_at_all_is_refused():
    with pytest.raises(ValueError, match="no client holds any item"):
        ClientSets.from_sets({"a": set()})


def test_identifiers_of_the_standard_library():
    data = python_identifiers(max_files=60)
    n, d = data.presence.shape
    assert (n, d) == (len(data.clients), len(data.vocabulary))
    assert n == 60
    assert d > 1000
    assert not any(keyword.iskeyword(word) for word in data.vocabulary)
    norms = data.presence.power(2).sum(axis=1)
    np.testing.assert_allclose(norms[norms > 0], 1)
    assert np.count_nonzero(norms) >= 40  # some files are empty
    assert data.presence.has_sorted_indices


def test_names_in_strings_and_comments_do_not_count(tmp_path):
    source = tmp_path / "module.py"
    source.write_text(
        "import os  # shutil\n"
        'rb"bytes" + f"{name}" + "it\\"s" + \'\'\'more\n"words" here\'\'\'\n'
        "def run(x1): return os.path\n"
    )
    assert _identifiers(source) == {"os", "run", "x1", "path"}


def test_public_names_are_of_other_code_and_hold_what_code_has():
    names = public_names()
    assert len(names) == len(set(names)) > 5_000
    assert {"self", "name", "append"} <= set(names[:2000])
