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
    Examples,
    LazyClients,
    PublicList,
)
from experiments.datasets.corpora import python_docstrings, stack_exchange, text_folder
from experiments.datasets.embedded import python_identifiers
from experiments.datasets.splits import hold_out, pooled

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


def client_words(texts: ClientTexts) -> ClientSets:
    """Return which words each client uses; their public list is `public_words`."""
    sets = {client: set(words("\n".join(own))) for client, own in texts.clients.items()}
    public = PublicList("Python's documentation", public_words)
    return ClientSets.from_sets(sets, public_list=public)


def client_items(data: str | os.PathLike[str] | None = None) -> ClientSets:
    """Return what heavy hitters are sought among: identifiers, or with ``data`` the words of texts.

    Parameters
    ----------
    data : path, optional
        Stack Exchange, or a folder of text files; else the sources of Python's library.
    """
    if data is None:
        return python_identifiers()
    path = Path(data)
    posts = path if path.is_file() else path / "se_all.json.gz"
    return client_words(stack_exchange(posts) if posts.is_file() else text_folder(path))


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


@dataclass(frozen=True)
class NextWordData(ClientData):
    """Sequences by client: x and y of shape (n, length), y one word ahead of x."""

    vocabulary: Vocabulary  # what the numbers mean; its ``size`` is the model's


def word_numbers(
    texts: ClientTexts,
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
    texts : ClientTexts
        Texts of each client.
    vocabulary_size : int
        Words that the training clients use most.
    max_words : int
        Different words of a text that count, the first so many.
    test_fraction, seed : float, int
        Which share of the clients is held out for the test, and the draw.
    """
    sites = sorted({name.partition("/")[0] for name in texts.clients})
    training, held_out = hold_out(texts.clients, test_fraction, seed)
    numbers = Vocabulary.of(training, vocabulary_size).numbers

    def encode(name: str) -> Examples:
        own = texts.clients[name]
        x = np.zeros((len(own), max_words), dtype=np.int32)
        for row, text in zip(x, own):
            known = dict.fromkeys(numbers[word] for word in tokens(text) if word in numbers)
            found = list(known)[:max_words]
            row[: len(found)] = found
        return x, np.full(len(x), sites.index(name.partition("/")[0]))

    return ClientData({name: encode(name) for name in training}, pooled(map(encode, held_out)))


def next_word(
    texts: ClientTexts,
    *,
    vocabulary_size: int = 2_000,
    sequence_length: int = 20,
    min_sentences: int = 1,
    max_sentences: int | None = None,
    max_test_sentences: int = 10_000,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> NextWordData:
    """Return sentences by client as sequences for a next-word model, tested on other people.

    Parameters
    ----------
    texts : ClientTexts
        Texts of each client. Large sources stay on disk and are encoded client by client.
    vocabulary_size : int
        Words that the training clients use most, 10 000 in the paper's setting; four special
        symbols come on top.
    sequence_length : int
        Words of a sentence that count.
    min_sentences : int
        Clients with fewer are left out, where the source holds out none.
    max_sentences : int, optional
        Of a client, the first so many.
    max_test_sentences : int
        For the test, shared evenly among the test clients.
    test_fraction, seed : float, int
        Which share of the clients is held out if the source holds out none, and the draw.
    """
    for name, value in {
        "vocabulary_size": vocabulary_size,
        "sequence_length": sequence_length,
        "min_sentences": min_sentences,
        "max_test_sentences": max_test_sentences,
    }.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    training, held_out = texts.clients, texts.held_out
    if not held_out:
        enough = {k: own for k, own in training.items() if _has_sentences(own, min_sentences)}
        if len(enough) < 2:
            raise ValueError(
                f"min_sentences={min_sentences} leaves {len(enough)} clients; at least two are "
                "needed, one of them for the test."
            )
        training, held_out = hold_out(enough, test_fraction, seed)
    vocabulary = Vocabulary.of(training, vocabulary_size)
    encode = partial(
        _encode,
        texts=training,
        vocabulary=vocabulary,
        length=sequence_length,
        max_sentences=max_sentences,
    )
    lazy = isinstance(training, LazyClients)
    clients = LazyClients(training, encode) if lazy else {name: encode(name) for name in training}
    each = ceil(max_test_sentences / len(held_out))
    sentences = (
        sentence for own in held_out.values() for sentence in islice(_sentences(own), each)
    )
    test = vocabulary.encode(islice(sentences, max_test_sentences), sequence_length)
    return NextWordData(clients, test, vocabulary)


def _encode(
    client: str,
    texts: Mapping[str, list[str]],
    vocabulary: Vocabulary,
    length: int,
    max_sentences: int | None,
) -> Examples:
    sentences = islice(_sentences(texts[client]), max_sentences)
    return vocabulary.encode(sentences, length)


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
