"""``sparse-secagg warmup``: compile the kernels once."""

from __future__ import annotations

import time

import typer


def warmup() -> None:
    """Compile the numerical kernels, so that no first round waits for them."""
    from sparse_secagg.warmup import warm_up

    start = time.perf_counter()
    compiling = warm_up()
    typer.echo(f"compiled in {compiling:.1f} s of {time.perf_counter() - start:.1f} s")
