"""From texts by client to vectors: which words people use, and sequences for next-word models.

The sequences are those of the field's Stack Overflow benchmark: a vocabulary of 10 000 words and
four special symbols (10 004 in all), sentences of 20 words, with beginning and end.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import (
    ClientData,
    ClientSets,
    ClientTexts,
    DataError,
    Examples,
    LazyClients,
)
from experiments.datasets.corpora import python_docstrings
from experiments.datasets.files import read_text
from experiments.datasets.splits import held_out_names, pooled

Texts = ClientTexts | Mapping[str, list[str]]

# Words keep apostrophes and hyphens; any other sign is a token of its own.
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def tokens(text: str) -> list[str]:
    """Return the words and signs of a text in lower case.

    >>> tokens("Don't panic: it's well-known!")
    ["don't", 'panic', ':', "it's", 'well-known', '!']
    """
    return _TOKEN.findall(text.lower())


def words(text: str) -> list[str]:
    """Return the words of a text in lower case: tokens that begin with a letter."""
    return [token for token in tokens(text) if token[0].isalpha()]


def client_words(texts: Texts) -> ClientSets:
    """Return which words each client uses.

    Parameters
    ----------
    texts : ClientTexts or mapping of str to list of str
        Texts of each client.
    """
    clients = texts.clients if isinstance(texts, ClientTexts) else texts
    sets = {client: set(words("\n".join(own))) for client, own in clients.items()}
    return ClientSets.from_sets(sets)


@cache
def public_words() -> tuple[str, ...]:
    """Return the words of Python's own documentation, the most common first.

    About 18 000 words that every installation has: a public list of what words may be.
    """
    texts = python_docstrings().clients
    used = Counter(word for own in texts.values() for word in set(words("\n".join(own))))
    return tuple(_most_common(used))


def public_word_scores(items: Iterable[str]) -> NDArray[np.float64]:
    """Return how common each item is in Python's own documentation, as minus its rank there.

    Public side information for counts of words, see :class:`solvers.priors.Scores`: words that the
    documentation does not have come last, all with the same score.

    >>> the, nonsense = public_word_scores(["the", "xyzzyx"])
    >>> bool(the > nonsense)
    True
    """
    known = public_words()
    rank = {word: k for k, word in enumerate(known)}
    return -np.array([rank.get(item.lower(), len(known)) for item in items], dtype=np.float64)


@dataclass(frozen=True)
class Vocabulary:
    """Words and their numbers: 0 pads, 1..n are the words, then unknown, beginning and end."""

    words: tuple[str, ...]  # the words, the most widespread first
    pad: int = field(default=0, init=False)

    @classmethod
    def of(cls, clients: Mapping[str, list[str]], size: int) -> Vocabulary:
        """Return the words that most clients use, ties in alphabetical order."""
        users = Counter(
            word for own in clients.values() for word in {w for text in own for w in tokens(text)}
        )
        return cls(tuple(_most_common(users)[:size]))

    @classmethod
    def read(cls, path: str | os.PathLike[str], size: int) -> Vocabulary:
        """Return the first words of a file such as ``stackoverflow.word_count``, one a line."""
        lines = read_text(Path(path)).splitlines()
        found = [line.split()[0] for line in lines[:size] if line.strip()]
        if len(found) < size or len(set(found)) < size:
            raise DataError(
                f"{path} has {len(set(found))} different words in its first {size} lines; "
                f"size={size} needs as many, one a line, the most frequent first."
            )
        return cls(tuple(found))

    @property
    def size(self) -> int:
        """How many numbers there are, special symbols included."""
        return len(self.words) + 4

    @property
    def oov(self) -> int:
        """The number of every word outside the vocabulary."""
        return len(self.words) + 1

    @property
    def bos(self) -> int:
        """The number before the first word of a sentence."""
        return len(self.words) + 2

    @property
    def eos(self) -> int:
        """The number after the last word of a sentence."""
        return len(self.words) + 3

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each word."""
        return {word: k for k, word in enumerate(self.words, start=1)}

    def encode(self, sentences: Iterable[str], length: int) -> Examples:
        """Return inputs and targets of shape (n, length): at each place, the next word.

        A sentence is cut after ``length`` words; the end symbol follows those that are shorter.
        """
        rows = []
        for sentence in sentences:
            row = [self.numbers.get(word, self.oov) for word in tokens(sentence)[:length]]
            if row:
                row = [self.bos, *row, *([self.eos] if len(row) < length else [])]
                rows.append(row + [self.pad] * (length + 1 - len(row)))
        table = np.array(rows, dtype=np.int64).reshape(len(rows), length + 1)
        return table[:, :-1], table[:, 1:]

    def decode(self, numbers: NDArray[np.integer]) -> str:
        """Return the words of a row, special symbols in angle brackets, padding left out."""
        names = ["<pad>", *self.words, "<oov>", "<bos>", "<eos>"]
        return " ".join(names[k] for k in numbers if k != self.pad)


@dataclass(frozen=True)
class NextWordData(ClientData):
    """Sequences by client: x and y of shape (n, length), y one word ahead of x."""

    vocabulary: Vocabulary  # what the numbers mean; its ``size`` is the model's


def word_numbers(
    texts: Texts,
    *,
    vocabulary_size: int = 20_000,
    max_words: int = 200,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> ClientData:
    """Return which words each text has, and which site its author wrote it on.

    x has a row for each text, the numbers of its different words from 1 to ``vocabulary_size``,
    filled up with zeros; y is the number of the site in alphabetical order. Sites are what stands
    before the slash in the names of the clients.

    Parameters
    ----------
    texts : ClientTexts or mapping of str to list of str
        Texts of each client.
    vocabulary_size : int
        Words that the training clients use most.
    max_words : int
        Different words of a text that count, the first so many.
    test_fraction, seed : float, int
        Which share of the clients is held out for the test, and the draw.
    """
    clients = texts.clients if isinstance(texts, ClientTexts) else texts
    sites = sorted({name.partition("/")[0] for name in clients})
    test = held_out_names(list(clients), test_fraction, seed)
    training = {name: own for name, own in clients.items() if name not in test}
    numbers = Vocabulary.of(training, vocabulary_size).numbers

    def encode(name: str) -> Examples:
        x = np.zeros((len(clients[name]), max_words), dtype=np.int32)
        for row, text in zip(x, clients[name]):
            known = dict.fromkeys(numbers[word] for word in tokens(text) if word in numbers)
            found = list(known)[:max_words]
            row[: len(found)] = found
        return x, np.full(len(x), sites.index(name.partition("/")[0]))

    data = {name: encode(name) for name in training}
    return ClientData(data, pooled([encode(name) for name in clients if name in test]))


def next_word(
    texts: Texts,
    *,
    vocabulary_size: int = 2_000,
    sequence_length: int = 20,
    min_sentences: int = 1,
    max_sentences: int | None = None,
    max_test_sentences: int = 10_000,
    test_fraction: float = 0.1,
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
) -> NextWordData:
    """Return sentences by client as sequences for a next-word model, tested on other people.

    Parameters
    ----------
    texts : ClientTexts or mapping of str to list of str
        Texts of each client. Large sources stay on disk and are encoded client by client.
    vocabulary_size : int
        Words that the training clients use most, 10 000 in the paper's setting; four special
        symbols come on top.
    sequence_length : int
        Words of a sentence that count.
    min_sentences : int
        Clients with fewer are left out; where the source stays on disk this is not looked at.
    max_sentences : int, optional
        Of a client, the first so many.
    max_test_sentences : int
        For the test, shared evenly among the test clients.
    test_fraction, seed : float, int
        Which share of the clients is held out if the source holds out none, and the draw.
    vocabulary : Vocabulary, optional
        To use instead of counting words over all training clients.
    """
    for name, value in {
        "vocabulary_size": vocabulary_size,
        "sequence_length": sequence_length,
        "max_test_sentences": max_test_sentences,
    }.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    training, held_out = _training_and_test(texts, test_fraction, min_sentences, seed)
    if vocabulary is None:
        vocabulary = Vocabulary.of(training, vocabulary_size)
    encode = partial(
        _encode,
        texts=training,
        vocabulary=vocabulary,
        length=sequence_length,
        max_sentences=max_sentences,
    )
    clients: Mapping[str, Examples]
    if isinstance(training, LazyClients):
        clients = LazyClients(training, encode)
    else:
        encoded = {name: encode(name) for name in training}
        clients = {name: (x, y) for name, (x, y) in encoded.items() if len(x)}
        if not clients:
            raise ValueError("the texts of the training clients have no words.")
    each = ceil(max_test_sentences / len(held_out))
    sentences_of_all = (
        sentence for own in held_out.values() for sentence in islice(_sentences(own), each)
    )
    chosen = islice(sentences_of_all, max_test_sentences)
    return NextWordData(clients, vocabulary.encode(chosen, sequence_length), vocabulary)


def _encode(
    client: str,
    texts: Mapping[str, list[str]],
    vocabulary: Vocabulary,
    length: int,
    max_sentences: int | None,
) -> Examples:
    sentences = islice(_sentences(texts[client]), max_sentences)
    return vocabulary.encode(sentences, length)


def _training_and_test(
    texts: Texts, fraction: float, min_sentences: int, seed: int
) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    clients = texts.clients if isinstance(texts, ClientTexts) else texts
    if isinstance(texts, ClientTexts) and texts.held_out:
        return clients, texts.held_out
    lazy = isinstance(clients, LazyClients)
    if not lazy:
        clients = {name: own for name, own in clients.items() if _has_sentences(own, min_sentences)}
        if len(clients) < 2:
            raise ValueError(
                f"min_sentences={min_sentences} leaves {len(clients)} clients; at least two are "
                "needed, one of them for the test."
            )
    test = held_out_names(list(clients), fraction, seed)
    training, held_out = (
        [name for name in clients if (name in test) == tested] for tested in (False, True)
    )
    if lazy:
        read = clients.__getitem__
        return LazyClients(training, read), LazyClients(held_out, read)
    return {name: clients[name] for name in training}, {name: clients[name] for name in held_out}


def _has_sentences(texts: list[str], least: int) -> bool:
    return sum(1 for _ in islice(_sentences(texts), least)) >= least


def _sentences(texts: Iterable[str]) -> Iterator[str]:
    """Yield the sentences that have a word."""
    for text in texts:
        for sentence in _SENTENCE_END.split(text):
            if _TOKEN.search(sentence):
                yield sentence


def _most_common(users: Counter[str]) -> list[str]:
    """Return the words that most use first, ties in alphabetical order."""
    return sorted(users, key=lambda word: (-users[word], word))
