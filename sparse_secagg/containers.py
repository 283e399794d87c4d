"""What users' vectors come in, told apart without importing the libraries that make them."""

from __future__ import annotations

from typing import Any

__all__ = ["is_sparse"]


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse matrix or array: one that converts to compressed rows."""
    return hasattr(X, "tocsr")
