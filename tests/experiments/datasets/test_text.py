"""Texts by author, and what is made of them."""

import gzip
import json
import os
from itertools import pairwise

import numpy as np
import pytest

from experiments.datasets import (
    ClientTexts,
    DataError,
    LazyClients,
    Vocabulary,
    client_items,
    client_words,
    next_word,
    python_docstrings,
    stack_exchange,
    text_folder,
    word_numbers,
)
from experiments.datasets.text import tokens
from experiments.training import tasks

TEXTS = {
    "ann": ["The cat sat. The dog ran!", "A cat?"],
    "bob": ["The dog, the dog..."],
    "cid": ["My cat is here"],
    "dot": ["..."],
}


def test_words_people_use():
    sets = client_words(ClientTexts(TEXTS))
    assert sets.clients == ["ann", "bob", "cid", "dot"]
    used = {
        client: {sets.vocabulary[j] for j in sets.presence[[i]].indices}
        for i, client in enumerate(sets.clients)
    }
    assert used["ann"] == {"the", "cat", "sat", "dog", "ran", "a"}
    assert used["bob"] == {"the", "dog"}
    np.testing.assert_allclose(sets.presence.power(2).sum(axis=1), [1, 1, 1, 0])  # dot uses none


def test_sequences_of_the_papers_setting():
    vocabulary = Vocabulary(tuple(f"w{k}" for k in range(10_000)))
    assert vocabulary.size == 10_004
    assert len({vocabulary.pad, vocabulary.oov, vocabulary.bos, vocabulary.eos}) == 4
    assert max(vocabulary.pad, vocabulary.oov, vocabulary.bos, vocabulary.eos) == 10_003
    x, y = vocabulary.encode(
        ["w0 w9999 unheard", " ".join(["w1"] * 30), "w2 " * 20, "", "w3 " * 19], 20
    )
    pad, oov, bos, eos = 0, 10_001, 10_002, 10_003
    np.testing.assert_array_equal(x[0], [bos, 1, 10_000, oov, eos] + [pad] * 15)
    np.testing.assert_array_equal(y[0], [1, 10_000, oov, eos] + [pad] * 16)
    np.testing.assert_array_equal(x[1], [bos] + [2] * 19)  # cut: no end
    np.testing.assert_array_equal(y[1], [2] * 20)
    np.testing.assert_array_equal(y[2], [3] * 20)
    np.testing.assert_array_equal(y[3], [4] * 19 + [eos])
    assert x.shape == y.shape == (4, 20)
    assert x.dtype == y.dtype == np.int64


def slow_pairs(text, vocabulary, length):
    """Return (input, target) words as a list walked by hand."""
    line = ["<bos>", *[t if t in vocabulary.words else "<oov>" for t in tokens(text)][:length]]
    if len(line) <= length:
        line.append("<eos>")
    return list(pairwise(line))


def test_targets_are_the_next_words():
    people = {f"p{k}": [f"word{k} and word{k + 1} or thing."] * (k + 1) for k in range(10)}
    data = next_word(
        ClientTexts(people), vocabulary_size=8, sequence_length=4, test_fraction=0.3, seed=2
    )
    assert len(data.clients) == 7
    assert data.vocabulary.size == 12
    for name, (x, y) in data.clients.items():
        assert len(x) == len(people[name])
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
        pairs = slow_pairs(people[name][0], data.vocabulary, 4)
        names = ["<pad>", *data.vocabulary.words, "<oov>", "<bos>", "<eos>"]
        assert [names[k] for k in x[0] if k] == [a for a, _ in pairs]
        assert [names[k] for k in y[0] if k] == [b for _, b in pairs]
    tested = {name for name in people if name not in data.clients}
    assert len(data.test[0]) == sum(len(people[name]) for name in tested)


def test_the_vocabulary_comes_from_training_clients_only():
    people = {f"p{k}": [f"own{k} common"] for k in range(10)}
    data = next_word(ClientTexts(people), vocabulary_size=100)
    held_out = set(people) - set(data.clients)
    assert set(data.vocabulary.words) == {"common"} | {f"own{name[1:]}" for name in data.clients}
    assert held_out


def test_limits_on_sentences():
    people = {f"p{k}": ["One. Two! Three? Four."] * (k + 1) for k in range(5)}
    data = next_word(ClientTexts(people), max_sentences=2, max_test_sentences=3, min_sentences=9)
    assert set(data.clients) <= {"p2", "p3", "p4"}
    assert {len(x) for x, _ in data.clients.values()} == {2}
    assert len(data.test[0]) == 3
    with pytest.raises(ValueError, match="min_sentences=100 leaves 0 clients"):
        next_word(ClientTexts(people), min_sentences=100)
    with pytest.raises(ValueError, match="min_sentences=0"):
        next_word(ClientTexts(people), min_sentences=0)
    with pytest.raises(ValueError, match="sequence_length=0"):
        next_word(ClientTexts(people), sequence_length=0)
    with pytest.raises(ValueError, match="test_fraction=1"):
        next_word(ClientTexts(people), test_fraction=1)


def test_large_sources_are_encoded_client_by_client():
    asked = []

    def read(name):
        asked.append(name)
        return [f"text of {name}"]

    texts = ClientTexts(LazyClients(["a", "b"], read), LazyClients(["c"], read))
    data = next_word(texts, vocabulary_size=2)
    assert data.vocabulary.words == ("of", "text")
    assert asked == ["a", "b", "c"]  # once for the vocabulary, and for the test
    np.testing.assert_array_equal(data.clients["a"][1][0, :4], [2, 1, 3, 5])
    assert asked == ["a", "b", "c", "a"]


def test_texts_of_pathological_shape_take_linear_time():
    assert [len(token) for token in tokens("a-" * 200_000)] == [399_999, 1]
    assert len(tokens("'" * 300_000)) == 300_000
    texts = ClientTexts({"a": [". " * 100_000 + "x"], "b": ["y" * 10**6]})
    data = next_word(texts, vocabulary_size=5)
    assert len(data.clients) == 1


# --- sources ---------------------------------------------------------------------------------

POSTS = [
    {"site": "bicycles", "user": 7, "kind": "p", "id": 1, "date": "2018-01-01", "text": "My bike"},
    {"site": "bicycles", "user": 9, "kind": "c", "id": 2, "date": "2018-01-02", "text": "Hm"},
    {"site": "cooking", "user": 7, "kind": "p", "id": 1, "date": "2018-01-01", "text": "My soup"},
    {"site": "bicycles", "user": 7, "kind": "c", "id": 3, "date": "2018-01-03", "text": "Thanks"},
]


def test_stack_exchange_by_site_and_user(tmp_path):
    (tmp_path / "se_all.json.gz").write_bytes(gzip.compress(json.dumps(POSTS).encode()))
    for texts in (
        stack_exchange(tmp_path),
        stack_exchange(tmp_path / "se_all.json.gz"),
    ):
        assert dict(texts.clients) == {
            "bicycles/7": ["My bike", "Thanks"],
            "bicycles/9": ["Hm"],
            "cooking/7": ["My soup"],
        }


@pytest.mark.parametrize(
    "entry", [5, {}, {"site": "a", "user": 1}, POSTS[0] | {"user": None}, POSTS[0] | {"text": 3}]
)
def test_posts_that_lack_something_are_named(tmp_path, entry):
    path = tmp_path / "se_all.json"
    path.write_text(json.dumps([POSTS[0], entry]))
    with pytest.raises(DataError, match="se_all.json: entry 1 lacks"):
        stack_exchange(tmp_path)


def test_folders_and_files_are_clients(tmp_path):
    (tmp_path / "ann" / "2020").mkdir(parents=True)
    (tmp_path / "ann" / "a.txt").write_text("one")
    (tmp_path / "ann" / "2020" / "b.txt").write_text("two", encoding="utf-8")
    (tmp_path / "bob.txt").write_text("thrée", encoding="utf-8")
    (tmp_path / "notes.pdf").write_bytes(b"\xff")
    texts = text_folder(tmp_path)
    assert {name: sorted(own) for name, own in texts.clients.items()} == {
        "ann": ["one", "two"],
        "bob": ["thrée"],
    }


def test_hostile_folders(tmp_path):
    with pytest.raises(DataError, match=r"has no files \*.txt"):
        text_folder(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "me.txt").symlink_to(secret)
    with pytest.raises(DataError, match="me.txt is a link out of the folder"):
        text_folder(folder)
    (folder / "me.txt").unlink()
    (folder / "me.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="me.txt is not UTF-8"):
        text_folder(folder)
    with pytest.raises(DataError, match="not a folder"):
        text_folder(secret)


def test_documentation_of_python_is_embedded():
    texts = python_docstrings(max_files=40)
    assert 5 <= len(texts.clients) <= 40
    data = next_word(texts, vocabulary_size=200)
    assert data.vocabulary.size <= 204
    assert "the" in data.vocabulary.words[:10]


@pytest.mark.skipif("SPARSE_SECAGG_DATA" not in os.environ, reason="needs the real files")
def test_real_stack_exchange():
    texts = stack_exchange()
    assert len(texts.clients) == 4192
    assert sum(map(len, texts.clients.values())) == 30_120
    assert client_words(texts).presence.shape[0] == 4192


def test_word_numbers_are_the_different_words_of_a_text_and_its_site():
    texts = {
        "tea/ann": ["green tea, green tea", "zebra"],
        "coffee/bob": ["black coffee and tea"],
        "coffee/cid": ["black coffee"],
        "coffee/dot": ["black coffee or coffee"],
    }
    data = word_numbers(
        ClientTexts(texts), vocabulary_size=4, max_words=3, test_fraction=0.25, seed=1
    )
    (held_out,) = texts.keys() - data.clients.keys()
    vocabulary = Vocabulary.of({k: v for k, v in texts.items() if k != held_out}, 4)
    for name, (x, y) in data.clients.items():
        assert x.shape == (len(texts[name]), 3)
        assert set(y) == {0 if name.startswith("coffee") else 1}
        for row, text in zip(x, texts[name]):
            known = [vocabulary.words.index(w) + 1 for w in tokens(text) if w in vocabulary.words]
            expected = list(dict.fromkeys(known))[:3]
            assert row.tolist() == expected + [0] * (3 - len(expected))
    assert len(data.test[1]) == len(texts[held_out])


def test_the_papers_words_come_from_stack_exchange_where_that_is_what_there_is(tmp_path):
    entries = [
        {"site": "tea", "user": k, "text": "Green tea is good. Is black tea better?"}
        for k in range(4)
    ]
    (tmp_path / "se_all.json").write_text(json.dumps(entries))
    data = tasks.get("next-word-paper").load(tmp_path)
    assert len(data.clients) == 4 - len(data.test[1]) // 2
    with pytest.raises(DataError, match="stackoverflow"):
        tasks.get("next-word-paper").load(tmp_path / "nothing")


def test_items_are_identifiers_or_words_of_a_folder_or_of_stack_exchange(tmp_path):
    folder = tmp_path / "texts"
    for client in ("ann", "bob"):
        (folder / client).mkdir(parents=True)
        (folder / client / "a.txt").write_text(f"hello {client} and everybody")
    found = client_items(folder)
    assert found.clients == ["ann", "bob"]
    assert {"hello", "ann", "everybody"} <= set(found.vocabulary)
    assert "and" in found.public_list.read()
    (tmp_path / "se_all.json.gz").write_bytes(gzip.compress(json.dumps(POSTS).encode()))
    for data in (tmp_path, tmp_path / "se_all.json.gz"):
        assert "bike" in client_items(data).vocabulary
