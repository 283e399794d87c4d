"""Domains do not depend on the data, on the platform or on the process; rows have norm one."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.datasets import (
    ClientSets,
    HashedItems,
    ListedItems,
    PublicList,
    choose_domain,
    public_word_scores,
    public_words,
)

DATA = ClientSets.from_sets({"ann": {"cat", "dog"}, "bob": {"dog", "owl", "yak"}, "cid": {"fox"}})


def test_items_outside_of_a_public_list_are_dropped_and_rows_have_norm_one():
    rows = DATA.on(ListedItems(("owl", "dog", "unicorn"))).toarray()
    half = 0.5**0.5
    np.testing.assert_allclose(rows, [[0, 1, 0], [half, half, 0], [0, 0, 0]])


def test_items_that_share_a_cell_count_once():
    cells = HashedItems(2)
    rows = DATA.on(cells).toarray()
    for items, row in zip(({"cat", "dog"}, {"dog", "owl", "yak"}, {"fox"}), rows):
        held = set(cells.columns(sorted(items)).tolist())
        np.testing.assert_allclose(row, [len(held) ** -0.5 * (k in held) for k in range(2)])


def test_the_cell_is_the_keyed_hash_by_definition():
    for item in ("cat", "", "naïve", "\ud800", "[/]"):
        digest = hashlib.blake2b(
            item.encode("utf-8", "surrogatepass"),
            digest_size=8,
            key=(5).to_bytes(8, "little"),
            person=b"item cells",
        ).digest()
        cell = int.from_bytes(digest, "little") % 1000
        assert HashedItems(1000, key=5).columns([item]).tolist() == [cell]


def test_cells_are_the_same_in_another_process_and_other_under_another_key():
    code = (
        "from experiments.datasets import HashedItems; print(HashedItems(2**20).columns(['cat']))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert out.stdout.strip() == "[491650]"
    assert HashedItems(2**20).columns(["cat"]).tolist() == [491650]
    assert HashedItems(2**20, key=1).columns(["cat"]).tolist() != [491650]


def test_cells_are_even():
    counts = np.bincount(HashedItems(64).columns([f"item{k}" for k in range(64_000)]), minlength=64)
    # chi-square with 63 degrees of freedom: above 136 once in a million
    assert np.sum((counts - 1000) ** 2 / 1000) < 136


def test_options_stand_for_domains(tmp_path):
    path = tmp_path / "items.txt"
    path.write_text("owl\r\ndog\n\n dog \nowl\n")
    assert choose_domain(str(path), DATA) == ListedItems(("owl", "dog", " dog "), "items.txt")
    for text in (1024, "1024", "2**10", "2^10"):
        assert choose_domain(text, DATA) == HashedItems(1024)
    assert choose_domain(None, DATA) == HashedItems(2**17)
    with_list = ClientSets.from_sets({"a": {"b"}}, public_list=PublicList("it", lambda: ("b", "c")))
    assert choose_domain(None, with_list) == ListedItems(("b", "c"), "it")


def test_wrong_domains_are_refused(tmp_path):
    for text in ("nowhere.txt", "observed", str(tmp_path), "1.5"):
        with pytest.raises(ValueError, match="is no file"):
            choose_domain(text, DATA)
    for text in (1, "0", "-5", "2**40"):
        with pytest.raises(ValueError, match="must be a number of cells"):
            choose_domain(text, DATA)
    with pytest.raises(ValueError, match="sparse-secagg count"):
        choose_domain("open", DATA)


def test_public_words_are_words():
    found = public_words()
    assert {"the", "of", "not", "list"} <= set(found[:100])
    assert len(found) == len(set(found))


def test_scores_of_words_are_their_ranks_in_public_texts():
    words = public_words()
    scores = public_word_scores([words[0], words[9].upper(), "xyzzyx", "no such word"])
    assert scores.tolist() == [0, -9, -len(words), -len(words)]
