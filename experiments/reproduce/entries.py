"""Every figure, table and theorem of the paper that can be asked for, by name."""

from __future__ import annotations

import difflib

from experiments.report.tables import TextTable
from experiments.reproduce import theory, training
from experiments.reproduce.entry import Entry

_WITH_MEANS = (
    "digits",
    "mnist",
    "fashion-mnist",
    "site",
    "emnist-cnn",
    "mnist-cnn",
    "next-word",
    training.MEANS,
)


def _paper(title: str, heads: str, *rows: str) -> tuple[TextTable, ...]:
    """Return a table of the paper's values from texts with bars between the columns."""
    cells = [tuple(piece.strip() for piece in row.split("|")) for row in (heads, *rows)]
    return (TextTable(f"the paper: {title}", cells[0], tuple(cells[1:]), 1),)


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            "compression-vs-noise",
            "figure 2",
            "Higher noise allows higher compression: Stack Overflow r = 4 at z = 0, 5 at 0.3, "
            "10 from 0.5 on; F-EMNIST r = 50 and more from z = 0.5 on.",
            (2, 15),
            _WITH_MEANS,
            _paper(
                "largest r within the slack",
                "z | Stack Overflow, 4 points | F-EMNIST, 1 point",
                "0 | 4 | not significantly more than 1",
                "0.3 | 5 | –",
                "0.5 | 10 | 50",
            ),
            sweeps=training.compression_vs_noise,
        ),
        Entry(
            "bits-vs-compression",
            "figures 3, 5 and 6, table 1",
            "Fewer coordinates make a cheaper message than fewer bits; with both, 1.2 bits "
            "per parameter suffice for Stack Overflow and 0.24 for F-EMNIST.",
            (2, 15),
            _WITH_MEANS,
            _paper(
                "bits per parameter within the slack",
                "z | fewer bits alone | fewer coordinates, or both | accuracy in %",
                "0.3, Stack Overflow | 10 (b = 10) | 2.4 (b = 12, r = 5) | 21.90 → 21.68",
                "0.5, Stack Overflow | 10 (b = 10) | 1.2 (b = 12, r = 10) | 21.21 → 20.74",
                "0.1, F-EMNIST | – | 1.2 (b = 12, r = 10) | –",
                "0.3, F-EMNIST | – | 0.7 (b = 14, r = 20) | –",
                "0.5, F-EMNIST | 10 (b = 10) | 0.24; 0.27 by r alone | –",
            ),
            sweeps=training.bits_vs_compression,
        ),
        Entry(
            "cohort",
            "figures 7 and 8",
            "Larger cohorts need more communication; with enough noise, 1000 clients do "
            "better than 100 with the same total message.",
            (2, 20),
            _WITH_MEANS,
            _paper(
                "F-EMNIST, accuracy in %",
                "z | n = 100, r = 1 | n = 1000",
                "0.1 | 83.05 ± 0.44 | 82.95 ± 0.40 (r = 10)",
                "0.3 | 80.61 ± 0.46 | 80.78 ± 0.29 (r = 40)",
                "0.5 | 75.34 ± 0.49 | 80.13 ± 0.22 (r = 50)",
            ),
            sweeps=training.cohort,
        ),
        Entry(
            "model-size",
            "figure 4",
            "A large model, compressed to the messages of a small one, does better by more "
            "than 5 points at every noise.",
            (2, 15),
            ("digits", "mnist", "emnist-cnn"),
            sweeps=training.model_size,
        ),
        Entry(
            "sketch-length",
            "appendix C",
            "Of 10, 15, 20 and 25 rows, 15 lead to the best accuracy.",
            (1, 10),
            _WITH_MEANS,
            sweeps=training.sketch_length,
        ),
        Entry(
            "per-layer",
            "figures 9 and 10",
            "Sketching the embedding and the rest by themselves, each at its own rate, gains "
            "nothing.",
            (2, 15),
            ("digits", "mnist", "fashion-mnist", "emnist-cnn", "next-word"),
            sweeps=training.per_layer,
        ),
        Entry(
            "thresholding",
            "appendix A.2",
            "Setting the small entries to zero, with an error term, gains nothing.",
            (2, 15),
            _WITH_MEANS,
            sweeps=training.thresholding,
        ),
        Entry(
            "noise-to-epsilon",
            "appendix C",
            "The highest z are about ε = 5 and 10, with δ = 1/N and cohorts of fixed size.",
            (0.1, 0.1),
            findings=theory.noise_to_epsilon,
        ),
        Entry(
            "theorem-main",
            "theorem 5.2",
            "At m = n²ε² the error is O(c²d/(n²ε²)), as without compression up to a constant, "
            "for O(n²ε² log n) bits.",
            (2, 10),
            sweeps=theory.theorem_main,
            findings=theory.main_bits,
        ),
        Entry(
            "theorem-sparse",
            "theorem 6.1",
            "For s-sparse means the Lasso errs by O(c² s log² d/(n²ε²)) with O(s log d) "
            "coordinates.",
            (2, 15),
            sweeps=theory.theorem_sparse,
            findings=theory.sparse_bits,
        ),
        Entry(
            "lemmas",
            "lemmas 3.4 to 3.6",
            "The sketch keeps products and lengths, and its transpose multiplies squares by "
            "at most 8d/m.",
            (0.2, 1),
            findings=theory.lemmas,
        ),
        Entry(
            "lower-bounds",
            "theorem 5.3",
            "B bits err by at least c²·2^(−2B/d), and unbiased ones by C₀c²d/B.",
            (1, 5),
            sweeps=theory.lower_bounds,
        ),
    )
}  # fmt: skip


def get_entry(name: str) -> Entry:
    """Return an entry by its name."""
    if name not in ENTRIES:
        close = difflib.get_close_matches(name, ENTRIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no entry {name!r}; {hint}there are list, {', '.join(ENTRIES)}.")
    return ENTRIES[name]
