"""The results of a sweep as a tidy table: one row a cell, summaries over seeds, winners."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.results.statistics import Interval, Samples, Winner, find_winner, mean_of
from experiments.sweeps.store import Result
from sparse_secagg.private_files import make_folder, open_private

#: Parameters that make series of a picture, in the order of a table's columns.
SERIES = ("encoder", "mechanism", "per_layer", "task", "decoder")


@dataclass(frozen=True)
class Summary:
    """All draws of one setting."""

    setting: dict[str, Any]  # the parameters that vary within the sweep
    interval: Interval | None  # mean and 95 % interval of the metric; None if no draw gave a value
    status: str  # "done", "infeasible", "failed", or several of them
    message: str  # why a draw gave no value
    extra: dict[str, float]  # arithmetic means of the other metrics, predictions among them
    seconds: float  # mean decoding (or training) time


@dataclass(frozen=True)
class WinnerRow:
    """The best decoder of one setting."""

    setting: dict[str, Any]
    winner: Winner


class SweepTable:
    """What a sweep found.

    Parameters
    ----------
    results : sequence of Result
        One a cell.
    axes : tuple of str
        The parameters that were asked to vary.
    """

    def __init__(self, results: Sequence[Result], axes: tuple[str, ...]) -> None:
        self.results = list(results)
        self.axes = axes
        if not self.results:
            raise ValueError("results is empty; a table needs at least one.")
        kind = type(self.results[0].cell)
        self.metric, self.lower_is_better = kind.metric, kind.lower_is_better

    def __len__(self) -> int:
        return len(self.results)

    @property
    def varying(self) -> list[str]:
        """Parameters with more than one value, axes first; what repetitions differ in aside."""
        found = list(self.axes)
        first = self.results[0].cell.setting()
        for result in self.results:
            for name, value in result.cell.setting().items():
                if name not in found and value != first.get(name):
                    found.append(name)
        for implied in ("n_rows", "sparsity"):  # None where it does not apply
            values = {r.cell.setting().get(implied) for r in self.results} - {None}
            if implied not in self.axes and implied in found and len(values) == 1:
                found.remove(implied)
        return [*self.axes, *[name for name in SERIES if name in found]] + [
            name for name in found if name not in self.axes and name not in SERIES
        ]

    @property
    def fixed(self) -> dict[str, Any]:
        """Parameters that are the same in all cells."""
        setting, varying = self.results[0].cell.setting(), self.varying
        return {name: value for name, value in setting.items() if name not in varying}

    @property
    def draws(self) -> int:
        """Draws of a setting: seeds, times the recorded rounds where there are."""
        return len({(result.cell.block, result.cell.seed) for result in self.results})

    @property
    def mean_name(self) -> str:
        """What kind of mean the table gives."""
        return "geometric mean" if self.lower_is_better else "arithmetic mean"

    @property
    def decoders(self) -> list[str]:
        """The decoders, in the order of the results."""
        return list(dict.fromkeys(result.cell.spec.decoder for result in self.results))

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat dictionary a cell: parameters, seed, status, metrics, timing."""
        return [result.record() for result in self.results]

    def export(self, path: str | Path) -> Path:
        """Write one line a cell, as comma-separated values."""
        records = self.to_records()
        path = Path(path)
        make_folder(path.parent)
        with open_private(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, dict.fromkeys(name for r in records for name in r))
            writer.writeheader()
            writer.writerows(records)
        return path

    def groups(self, *without: str) -> dict[str, list[Result]]:
        """Return results that agree on all varying parameters but ``without``, in their order."""
        names = [name for name in self.varying if name not in without]
        found: dict[str, list[Result]] = {}
        for result in self.results:
            setting = result.cell.setting()
            key = json.dumps([setting.get(name) for name in names])
            found.setdefault(key, []).append(result)
        return found

    def summary(self, metric: str | None = None) -> list[Summary]:
        """Return one row for every setting: mean and interval over its seeds."""
        return [self._summarise(group, metric or self.metric) for group in self.groups().values()]

    def _summarise(self, group: list[Result], metric: str) -> Summary:
        done = [result for result in group if result.metrics.get(metric) is not None]
        names = {name for result in done for name in result.metrics} - {metric}
        extra = {}
        for name in sorted(names):
            present = [v for r in done if (v := r.metrics.get(name)) is not None]
            if present:
                extra[name] = sum(present) / len(present)
        return Summary(
            setting=self._setting(group[0]),
            interval=self._interval(done, metric) if done else None,
            status=", ".join(sorted({result.status for result in group})),
            message=next((result.message for result in group if result.message), ""),
            extra=extra,
            seconds=sum(result.seconds for result in done) / max(len(done), 1),
        )

    def _interval(self, group: Sequence[Result], metric: str) -> Interval:
        """Return the mean of a metric, of one decoder; geometric for errors."""
        (values,) = self.samples(group, metric).values()
        return mean_of(values, geometric="error" in metric)

    def winners(self, metric: str | None = None) -> list[WinnerRow]:
        """Return the best decoder of every setting, by paired comparison on the same draws."""
        rows = []
        for group in self.groups("decoder").values():
            samples = self.samples(group, metric or self.metric)
            if samples:
                winner = find_winner(samples, lower_is_better=self.lower_is_better)
                setting = self._setting(group[0])
                setting.pop("decoder", None)
                rows.append(WinnerRow(setting, winner))
        return rows

    @staticmethod
    def samples(group: Sequence[Result], metric: str) -> dict[str, Samples]:
        """Return the values of one setting by decoder and draw."""
        found: dict[str, dict[tuple[Any, int], float]] = {}
        for result in group:
            value = result.metrics.get(metric)
            if value is not None:
                place = found.setdefault(result.cell.spec.decoder, {})
                place[result.cell.block, result.cell.seed] = value
        return dict(found)

    def _setting(self, result: Result) -> dict[str, Any]:
        setting = result.cell.setting()
        return {name: setting.get(name) for name in self.varying}
