"""Side-by-side measurements against peers; see ``python -m benchmarks --help``."""
