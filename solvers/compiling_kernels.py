"""Numba as the kernels import it: whoever has to wait for a compilation is told what for.

A kernel is compiled when it is first called with arguments of its types, and kept on disk for all
processes. ``sparse-secagg warmup`` calls every kernel once.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

try:
    import numba
    from numba import njit
    from numba.core import event
except ImportError as error:
    raise ImportError(
        f"this needs numba, which compiles its kernels: {error}. Install it with "
        "'pip install numba'. Without it a client can make its messages, and nothing else runs."
    ) from None

__all__ = ["CompilationNotice", "njit", "notice", "numba"]

_LOGGER = logging.getLogger("sparse_secagg")
#: Seconds of waiting that a user would wonder about.
_PATIENCE = 1.0
#: Where our kernels are; others' are none of our business.
_OURS = ("solvers.", "sparse_secagg.")


class CompilationNotice(event.Listener):
    """Say once, in one line of the log, that compiling takes longer than a second.

    Attributes
    ----------
    seconds : float
        Spent compiling in this process; kernels that were found on disk take none.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._said = False
        self._depth = 0
        self._begun = 0.0
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        """Start the clock, unless a kernel that calls this one has started it."""
        if not _is_ours(event):
            return
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._begun = time.perf_counter()

    def on_end(self, event: Any) -> None:
        """Add what the outermost kernel took."""
        if not _is_ours(event):
            return
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._begun
            if self.seconds <= _PATIENCE or self._said:
                return
            self._said = True
        _LOGGER.warning(
            "compiling kernels, once after an installation; 'sparse-secagg warmup' does all of it "
            "beforehand"
        )

    def silence(self) -> None:
        """Say nothing from now on."""
        self._said = True


def _is_ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith(_OURS)


#: The listener of this process.
notice = CompilationNotice()
event.register("numba:compile", notice)  # type: ignore[no-untyped-call]
