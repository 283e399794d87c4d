"""``python -m benchmarks NAME``: run one benchmark, or all, and print its tables.

A benchmark is a module of this package with ``run(quick: bool) -> list[Report]``.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import benchmarks
from benchmarks.harness import write_json

MODULES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
NAMES = sorted(name for name in MODULES if name != "harness" and not name.startswith("_"))


def main(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}; or all.")],
    quick: Annotated[bool, typer.Option(help="Small sizes: check that it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the results here.")] = None,
) -> None:
    """Measure one part of the library against its peers."""
    if name not in [*NAMES, "all"]:
        raise typer.BadParameter(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
    console, reports = Console(), []
    for each in NAMES if name == "all" else [name]:
        start = time.perf_counter()
        found = importlib.import_module(f"benchmarks.{each}").run(quick=quick)
        for report in found:
            report.show(console)
        if name == "all":
            console.print(f"{each}: {time.perf_counter() - start:.1f} s")
        reports += found
    if json is not None:
        write_json(json, reports)
        console.print(f"written: {json}")


if __name__ == "__main__":
    typer.run(main)
