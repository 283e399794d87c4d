"""Data split by client: embedded sets, and loaders for the files of known ones.

Every failure is a `DataError` that names the file and the remedy; no loader runs anything that a
file holds.
"""

from experiments.datasets.base import (
    ClientData,
    ClientSets,
    ClientTexts,
    DataError,
    LazyClients,
    MissingDataError,
    PublicList,
    choose_domain,
)
from experiments.datasets.corpora import python_docstrings, stack_exchange, text_folder
from experiments.datasets.embedded import digits, public_names, python_identifiers
from experiments.datasets.images import fashion_mnist, mnist_by_writer
from experiments.datasets.splits import dirichlet_split, split_by_client
from experiments.datasets.tensorflow_federated import femnist, stackoverflow
from experiments.datasets.text import (
    NextWordData,
    Vocabulary,
    client_items,
    client_words,
    next_word,
    public_word_scores,
    public_words,
    word_numbers,
)
from sparse_secagg.counting.domains import Domain, HashedItems, ListedItems

__all__ = [
    "ClientData",
    "ClientSets",
    "ClientTexts",
    "DataError",
    "Domain",
    "HashedItems",
    "LazyClients",
    "ListedItems",
    "MissingDataError",
    "NextWordData",
    "PublicList",
    "Vocabulary",
    "choose_domain",
    "client_items",
    "client_words",
    "digits",
    "dirichlet_split",
    "fashion_mnist",
    "femnist",
    "mnist_by_writer",
    "next_word",
    "public_names",
    "public_word_scores",
    "public_words",
    "python_docstrings",
    "python_identifiers",
    "split_by_client",
    "stack_exchange",
    "stackoverflow",
    "text_folder",
    "word_numbers",
]
