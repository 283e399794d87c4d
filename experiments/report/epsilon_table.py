"""``sparse-secagg epsilon``: from noise multipliers z to ε, for every observer.

One mechanism, calibrated for the cohort, is asked for its privacy as one object;
every number of the table comes from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console

from experiments.report.layout import print_table
from experiments.report.tables import TextTable
from sparse_secagg.mechanisms import CentralGaussian, DiscreteGaussian
from sparse_secagg.parameters import default
from sparse_secagg.privacy import Sampling
from sparse_secagg.privacy.conversion import stated

#: So fine a grid that rounding does not show: the table is about z, not about bits.
_N_BITS = 40


@dataclass(frozen=True)
class Setting:
    """What ε depends on beside z."""

    #: Clients in a round, and clients altogether, from whom each cohort is drawn.
    clients: int
    population: int
    rounds: int = default("rounds")
    delta: float = default("delta")
    colluders: int = default("colluders")  # clients of a cohort that may tell their noise
    adjacency: str = default("adjacency")  # what neighbouring data sets are
    noise_multipliers: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0, 4.0)


#: The two settings of the paper's experiments, at its smallest cohort; δ = 1/N.
PRESETS = {
    "f-emnist": Setting(clients=100, population=3400, rounds=1500, delta=1 / 3400),
    "stack-overflow": Setting(clients=100, population=342_477, rounds=1500, delta=1 / 342_477),
}


@dataclass(frozen=True)
class EpsilonRow:
    """ε of all rounds at one noise multiplier."""

    noise_multiplier: float  # z of the whole cohort's noise
    #: Distributed noise: against the server, against it with the colluders, and to anyone who sees
    #: only the results while the cohorts, of fixed size, stay secret.
    server: float
    colluders: float
    release: float
    #: Central noise on Poisson cohorts: to anyone who sees only the results of a trusted server,
    #: and not how many clients took part.
    trusted_server: float


def epsilon_table(setting: Setting) -> list[EpsilonRow]:
    """Return one row for each noise multiplier of the setting."""
    return [_row(setting, float(z)) for z in setting.noise_multipliers]


def _row(setting: Setting, z: float) -> EpsilonRow:
    fixed = Sampling(setting.clients, setting.population)
    options: dict[str, Any] = {
        "noise_multiplier": z,
        "delta": setting.delta,
        "adjacency": setting.adjacency,
    }
    distributed = DiscreteGaussian(n_bits=_N_BITS, **options)
    distributed.calibrate(setting.clients, 2)
    privacy = distributed.privacy(colluders=setting.colluders, sampling=fixed)
    central = CentralGaussian(**options)
    central.calibrate(setting.clients, 2)
    trusted = central.privacy(sampling=replace(fixed, kind="poisson"))
    rounds = setting.rounds
    return EpsilonRow(
        noise_multiplier=z,
        server=privacy.epsilon("server", rounds=rounds),
        colluders=privacy.epsilon("colluders", rounds=rounds),
        release=privacy.epsilon("release", rounds=rounds),
        trusted_server=trusted.epsilon("release", rounds=rounds),
    )


def as_document(setting: Setting, rows: Sequence[EpsilonRow]) -> dict[str, Any]:
    """Return setting and rows as JSON values; infinite ε is null."""
    return {
        "setting": asdict(setting),
        "rows": [
            {name: value if math.isfinite(value) else None for name, value in asdict(row).items()}
            for row in rows
        ],
    }


def as_table(setting: Setting, rows: Sequence[EpsilonRow]) -> TextTable:
    """Return a column for each observer."""
    title = (
        f"ε after {setting.rounds:,} rounds of {setting.clients:,} of {setting.population:,} "
        f"clients, δ = {stated(setting.delta, 3)}"
    )
    columns = {"z": "noise_multiplier", "server": "server"}
    if setting.colluders:
        columns[f"server + {setting.colluders}"] = "colluders"
    columns |= {"release": "release", "trusted server": "trusted_server"}
    body = [[stated(getattr(row, n)).replace("inf", "∞") for n in columns.values()] for row in rows]
    return TextTable(title, tuple(columns), tuple(map(tuple, body)), 0)


def show(setting: Setting, rows: Sequence[EpsilonRow], console: Console) -> None:
    """Print the table and who its observers are."""
    print_table(as_table(setting, rows), console)
    with_colluders = f" (+ {setting.colluders}: with so many colluding clients)"
    console.print(
        "server: distributed noise, against the server, which knows the cohorts"
        f"{with_colluders if setting.colluders else ''}."
        "\nrelease: distributed noise, to anyone who sees only the results; cohorts of fixed "
        "size, drawn in secret."
        "\ntrusted server: central noise on Poisson cohorts whose size nobody learns, to anyone "
        "who sees only the results; against the server itself ε is infinite.",
        highlight=False,
    )
