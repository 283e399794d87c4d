"""The kernels by name, compiled or in plain NumPy: ``kernels.inversion.invert(...)``.

Where numba is installed they are the compiled ones. Elsewhere, as on a small client, they are their
twins in :mod:`sparse_secagg.numpy_kernels`, which write the same numbers more slowly; the variable
``SPARSE_SECAGG_KERNELS=numpy`` chooses those everywhere. A module is imported when it is first
asked for. The Gaussian ensemble has no twin: it is too large for a client without compiled kernels.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the compiled kernels take and return the same
    from sparse_secagg.numpy_kernels import (
        count_sketch,
        hadamard,
        hashing,
        inversion,
        modular,
        rejection,
        rounding,
        rows,
        walsh_hadamard,
        wire,
    )

__all__ = [
    "COMPILED",
    "count_sketch",
    "hadamard",
    "hashing",
    "inversion",
    "kind",
    "modular",
    "rejection",
    "rounding",
    "rows",
    "using",
    "walsh_hadamard",
    "wire",
]

#: Where the compiled kernels of each name are.
COMPILED = {
    "count_sketch": "sparse_secagg.sketches._count_sketch_kernels",
    "hadamard": "sparse_secagg.sketches._hadamard_kernels",
    "hashing": "sparse_secagg._hash_kernels",
    "inversion": "sparse_secagg.mechanisms._inversion_kernels",
    "modular": "sparse_secagg.secagg._modular_kernels",
    "rejection": "sparse_secagg.mechanisms._sampling_kernels",
    "rounding": "sparse_secagg.mechanisms._rounding_kernels",
    "rows": "sparse_secagg._row_kernels",
    "walsh_hadamard": "sparse_secagg._walsh_hadamard_kernels",
    "wire": "sparse_secagg.secagg._wire_kernels",
}

_VARIABLE = "SPARSE_SECAGG_KERNELS"


def kind() -> str:
    """Return which kernels this process uses: "numba" or "numpy"."""
    chosen = os.environ.get(_VARIABLE)
    if chosen not in (None, "numba", "numpy"):
        raise ValueError(
            f"{_VARIABLE}={chosen!r} must be 'numba' for compiled kernels or 'numpy' for their "
            "twins; leave it unset to use numba where it is installed."
        )
    installed = importlib.util.find_spec("numba") is not None
    if chosen == "numba" and not installed:
        raise ImportError(
            f"{_VARIABLE}='numba', but numba is not installed; install it, or leave the variable "
            "unset to use NumPy in its place."
        )
    return chosen or ("numba" if installed else "numpy")


@contextmanager
def using(chosen: str) -> Iterator[None]:
    """Use the kernels of one kind, "numba" or "numpy", for a while: to compare the two.

    It is a setting of the whole process and of those that it starts meanwhile.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = chosen
    _forget_modules()
    try:
        kind()
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
        _forget_modules()


def _forget_modules() -> None:
    for name in COMPILED:
        globals().pop(name, None)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in COMPILED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        twin = f"sparse_secagg.numpy_kernels.{name}"
        module = importlib.import_module(COMPILED[name] if kind() == "numba" else twin)
        globals()[name] = module  # so that this is asked once
        return module
