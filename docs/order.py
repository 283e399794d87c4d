"""The order in which the gallery is read."""

_ORDER = [
    "one_round",
    "error_bars",
    "private_counts",
    "accuracy_against_sparsity",
    "phase_diagram",
    "recorded_gradients",
    "own_parts",
    "planning",
    "federated_training",
    "flower",
    "sessions",
    "audit",
    "dask",
]


class Reading:
    """A key for sphinx-gallery: first what everybody needs, then what some do."""

    def __init__(self, source_folder: str) -> None:
        del source_folder

    def __call__(self, filename: str) -> int:
        """Return the place of an example; an example that is not listed is an error."""
        return _ORDER.index(filename.removeprefix("plot_").removesuffix(".py"))
