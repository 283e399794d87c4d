"""Private mean estimation: clients send short noisy integer sketches, the server decodes their sum.

Names are imported on first use, so that ``import sparse_secagg`` costs nothing by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparse_secagg.encoders import (
        BlockEncoder,
        CountSketchEncoder,
        GaussianEncoder,
        HadamardEncoder,
        IdentityEncoder,
    )

__version__ = "0.1.0"

_HOME = {
    "BlockEncoder": "encoders",
    "CountSketchEncoder": "encoders",
    "GaussianEncoder": "encoders",
    "HadamardEncoder": "encoders",
    "IdentityEncoder": "encoders",
}

__all__ = [
    "BlockEncoder",
    "CountSketchEncoder",
    "GaussianEncoder",
    "HadamardEncoder",
    "IdentityEncoder",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
