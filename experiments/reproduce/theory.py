"""The theorems, lemmas and bounds as measurements, with intervals over sketches and noise.

ε is ``zcdp_epsilon`` = 1/z throughout. Clients are aligned (all hold μ) and ‖μ‖ = c = 1, the worst
case of the main scheme's bound. Exponents are fits to the logarithms of mean errors; their
intervals are those of the jackknife over seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from experiments.report.html import Finding, Picture
from experiments.report.tables import TextTable
from experiments.reproduce.entry import Asked, Setting
from experiments.results.conclusions import samples_by
from experiments.results.statistics import Interval, Samples, mean_of
from experiments.results.table import SweepTable
from experiments.results.verdicts import Judge, Law, Verdict, judge_laws
from experiments.sweeps.cell import Cell
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.grid import Grid
from sparse_secagg import InfeasibleError
from sparse_secagg.encoders import CountSketchEncoder
from sparse_secagg.mechanisms import DiscreteGaussian
from sparse_secagg.planning.clips import JL_CLIP, expected_spectral_factor

#: Slopes within 5 % for the main scheme, within 10 % for the sparse one.
MAIN, SPARSE = 0.05, 0.1
_FINE = 30  # bits where bits are not the subject

_Means = Mapping[Any, float]


def _near(name: str, found: Interval, expected: float, tolerance: float) -> Law:
    reach = tolerance * (abs(expected) or 1.0)
    return Law(name, found, expected - reach, expected + reach)


def jackknife(statistic: Callable[[_Means], float], curve: Mapping[Any, Samples]) -> Interval:
    """Return a statistic of means over draws, with an interval from leaving draws out."""
    draws = list(next(iter(curve.values())))

    def value(kept: Sequence[Any]) -> float:
        return statistic({x: float(np.mean([of[d] for d in kept])) for x, of in curve.items()})

    n, whole = len(draws), value(draws)
    pseudo = {d: n * whole - (n - 1) * value([e for e in draws if e != d]) for d in draws}
    return mean_of(pseudo, geometric=False)


def exponent(means: _Means, scale: Callable[[Any], float] = float) -> float:
    """Return the fitted exponent of the error as a power of a function of the parameter."""
    x = [math.log(scale(value)) for value in means]
    return float(np.polyfit(x, np.log(list(means.values())), 1)[0])


def _power(
    name: str,
    axis: str,
    expected: float,
    tolerance: float,
    scale: Callable[[Any], float] = float,
    at_most: bool = False,
    over: Callable[[Any], float] = lambda value: 1.0,
) -> Judge:
    """Judge the exponent of the error, or of the error over something, along an axis."""

    def judge(table: SweepTable, slack: float) -> Verdict:
        curve = {x: s for x, s in sorted(samples_by(table, axis).items()) if s}
        found = jackknife(lambda e: exponent({x: e[x] / over(x) for x in e}, scale), curve)
        law = _near(name, found, expected, tolerance)
        if at_most:
            law = Law(name, found, -math.inf, law.high)
        return judge_laws(f"{name}, {len(curve)} points", [law])

    return judge


def _bits_needed(z: float, n: int, m: int) -> float:
    """Return b, between whole numbers too, at which rounding adds a quarter to the noise of m."""
    variance: dict[int, float] = {}
    for n_bits in (*range(4, 24), _FINE):
        mechanism = DiscreteGaussian(noise_multiplier=z, n_bits=n_bits)
        with suppress(InfeasibleError):
            mechanism.calibrate(n, m)
            variance[n_bits] = mechanism.noise_std(n) ** 2
    excess = [(b, v / variance[_FINE] - 1) for b, v in variance.items() if b < _FINE]
    for (b, more), (_, less) in itertools.pairwise(excess):
        if more > 0.25 >= less:
            return float(b + math.log(more / 0.25) / math.log(more / less))
    return float(excess[0][0])


_LOGARITHM = "bits b in log₂(n + √(n³ε²/m) + √m/ε)"


def _point(z: float, n: int, m: int) -> tuple[float, int, int, float]:
    return z, n, m, math.log2(n + math.sqrt(n**3 / z**2 / m) + math.sqrt(m) * z)


def _bits(name: str, tolerance: float, points: Sequence[tuple[float, int, int, float]]) -> Finding:
    """Judge how b grows with the logarithm that theory foretells, at (z, n, m, logarithm)."""
    needed = [_bits_needed(z, n, m) for z, n, m, _ in points]
    slope = float(np.polyfit([log for *_, log in points], needed, 1)[0])
    law = _near(name, Interval(slope, slope, slope, len(points)), 1.0, tolerance)
    rows = tuple(
        (f"{n}", f"{m}", f"{b:.2f}", f"{log:.2f}") for (_, n, m, log), b in zip(points, needed)
    )
    heads = ("clients n", "m", "bits b at which rounding adds a quarter to the noise", "logarithm")
    return Finding(
        name,
        "How do the bits of a coordinate grow?",
        tables=[TextTable(name, heads, rows, 0)],
        verdicts=[judge_laws(f"{name}, {len(points)} points", [law])],
    )


def _ratio(name: str, expected: float) -> Judge:
    """Judge the error of the sketch over that without compression."""

    def judge(table: SweepTable, slack: float) -> Verdict:
        found = samples_by(table, "encoder")
        curve = {name: found[name] for name in ("identity", "count_sketch")}
        measured = jackknife(lambda e: e["count_sketch"] / e["identity"], curve)
        return judge_laws(name, [_near(name, measured, expected, MAIN)])

    return judge


def _draw(axis: str, expected: float, scale: Callable[[Any], float] = float) -> Any:
    def draw(table: SweepTable, slack: float) -> dict[str, Any]:
        from experiments.report.paper_figures import draw_power

        return {"": draw_power(table, axis, expected, scale)}

    return draw


def _curves(table: SweepTable, slack: float) -> dict[str, Any]:
    from experiments.report.figures import draw_sweep

    return {"": draw_sweep(table)}


# --- the main scheme


def theorem_main(setting: Setting) -> list[Asked]:
    """Measure the exponents, the bits and the constant at m = n²ε²."""
    seeds = setting.seed_list(5 if setting.quick else 20)
    base = MeanCell(
        mean="dense",
        dim=8000,
        clients=80,
        norm=1.0,
        spread=0.0,
        n_rows=10,
        n_bits=_FINE,
        noise_multiplier=2.0,
        sketch_clip="jl",
    )

    def matched(cell: Cell) -> Cell:
        """Set m = n²ε²."""
        assert isinstance(cell, MeanCell)
        z = cell.spec.noise_multiplier or 1.0
        return cell.with_values(compression=max(1.0, cell.dim * (z / (cell.clients or 1)) ** 2))

    def sweep(title: str, axes: Any, judge: Judge, draw: Any, **more: Any) -> Asked:
        own = {"adjust": matched, **more}
        cell = own.pop("base", base)
        return Asked(title, Grid(axes, cell, seeds=seeds, **own), [judge], draw)

    ns, zs, ds = (20, 40, 80, 160), (1.0, 2.0, 4.0, 8.0), (2000, 4000, 8000, 16_000)
    rates = (1.25, 5.0, 20.0, 80.0)
    by_d = base.with_values(clients=40, noise_multiplier=1.0)
    bare = base.with_values(noise_multiplier=0.0, clients=4)
    found = []
    for name, axis, values, expected, scale, more in (
        ("n", "clients", ns, -2, float, {}),
        ("ε", "noise_multiplier", zs, -2, _inverse, {}),
        ("d", "dim", ds, 1, float, {"base": by_d}),
        ("m without noise", "compression", rates, -1, _inverse, {"base": bare, "adjust": None}),
    ):
        judge = _power(f"exponent of {name}", axis, expected, MAIN, scale)
        draw = _draw(axis, expected, scale)
        found.append(sweep(f"error against {name}", {axis: values}, judge, draw, **more))
    for clip, constant in (("jl", 2.21), ("tight", 2.0)):
        name = f"error over that without compression, {clip} clip"
        cell = base.with_values(sketch_clip=clip, compression=5.0)
        # the identity has no sketch to compress: the same noise, on d coordinates
        encoders = ("identity", "count_sketch")
        found.append(
            sweep(
                name,
                {"clients": (80,)},
                _ratio(name, constant),
                _curves,
                base=cell,
                encoders=encoders,
                adjust=None,
            )
        )
    return found


def main_bits(setting: Setting) -> list[Finding]:
    """Calculate how b grows with n at m = n²ε², ε = 1, from the calibrated mechanism."""
    return [_bits(_LOGARITHM, MAIN, [_point(1.0, n, n**2) for n in (40, 80, 160, 320, 640)])]


def _inverse(value: float) -> float:
    return 1 / value


# --- the sparse scheme


def theorem_sparse(setting: Setting) -> list[Asked]:
    """Measure the exponents of the Gaussian ensemble with the Lasso: as printed, and mended.

    The mean is of norm 0.7, so that none of its sketches is clipped, and far above the noise: what
    is measured is the error of noise alone, of which the theorem speaks.
    """
    seeds = setting.seed_list(3 if setting.quick else 20)
    base = MeanCell(
        mean="flat",
        dim=4000,
        clients=100,
        sparsity=10,
        norm=0.7,
        spread=0.0,
        n_bits=_FINE,
        encoder="gaussian",
    )

    def measured(cell: Cell) -> Cell:
        """Set m = 8 s ln d."""
        assert isinstance(cell, MeanCell)
        m = 8 * (cell.spec.sparsity or 1) * math.log(cell.dim)
        return cell.with_values(compression=max(1.0, cell.dim / m))

    ns, ss, ds = (50, 100, 200, 400), (7, 14, 28, 56), (500, 1000, 2000, 4000, 8000)
    rates = (1.25, 2.0, 3.5, 6.0)
    found = []
    # the paper's λ is √m times larger than needed: it takes that much less noise to see anything
    for clip, alpha, z in (
        ("jl", "noise", 0.1),
        ("spectral", "noise", 0.05),
        ("spectral", "paper", 0.01),
    ):
        cell = base.with_values(
            sketch_clip=clip, decoder=f"lasso:alpha={alpha}", noise_multiplier=z
        )
        zs = (z / 2, z, 2 * z, 4 * z)
        for name, axis, values, adjust in (
            ("n", "clients", ns, measured),
            ("ε", "noise_multiplier", zs, measured),
            ("s", "sparsity", ss, measured),
            ("d", "dim", ds, measured),
            ("m", "compression", rates, None),
        ):
            told = f"exponent of {name} in error over sλ² ({clip} clip, α = {alpha})"
            scale = partial(_foretold, cell, axis, adjust)
            judges = [_power(told, axis, 0, SPARSE, over=scale)]
            if axis == "dim":
                bound = f"exponent of ln d ({clip} clip, α = {alpha})"
                judges.append(_power(bound, axis, 2, SPARSE, math.log, at_most=True))
            grid = Grid({axis: values}, cell, seeds=seeds, adjust=adjust)
            found.append(Asked(told, grid, judges, _draw(axis, 1, scale)))
    return found


def _foretold(
    cell: MeanCell, axis: str, adjust: Callable[[Cell], Cell] | None, value: float
) -> float:
    """Return sλ² of the oracle inequality with every factor of λ: the clip, ‖S_i‖, logarithms.

    To the rule "noise", λ = σ max‖S_i‖ √(2 ln d) with σ = c'z/n, the proof's sλ² adds sσ², what
    the noise leaves of s known coordinates; the paper's λ has √m and ln d + 1 + ln(2/δ) besides.
    """
    found: Any = cell.with_values(**{axis: value})
    found = found if adjust is None else adjust(found)
    d, m = found.dim, found.dim / found.spec.compression
    clip = JL_CLIP if found.spec.sketch_clip == "jl" else expected_spectral_factor(d, m)
    longest = (1 + math.sqrt(math.log(d) / m)) ** 2
    logs = 2 * math.log(d) * longest + 1
    if "paper" in found.spec.decoder:
        logs = m * (math.log(d) + 1 + math.log(200)) / 2 * longest
    return float(
        found.spec.sparsity * (clip * found.spec.noise_multiplier / found.clients) ** 2 * logs
    )


def sparse_bits(setting: Setting) -> list[Finding]:
    """Calculate how b grows with n at m = 8 s ln d, ε = 10, from the calibrated mechanism."""
    m, z = round(80 * math.log(4000)), 0.1
    return [_bits(_LOGARITHM, SPARSE, [_point(z, n, m) for n in (50, 100, 200, 400, 800)])]


# --- bounds


def lower_bounds(setting: Setting) -> list[Asked]:
    """Measure bits against error for all schemes, on a mean of the clip's norm."""
    base = MeanCell(mean="dense", dim=4096, clients=50, norm=1.0, spread=0.0, noise_multiplier=1.0)
    axes = {
        "n_bits": (8, 12, 18) if setting.quick else (8, 9, 10, 12, 14, 18, 24),
        "compression": (1, 4, 16) if setting.quick else (1, 2, 4, 8, 16, 32, 64),
    }
    seeds = setting.seed_list(3 if setting.quick else 10)
    schemes = ("count_sketch", "hadamard", "gaussian")
    mechanisms = ("ddg", "skellam")

    def unsketched(cell: Cell) -> Cell:
        """At r = 1 no encoder is used."""
        return cell.with_values(encoder="identity") if cell.spec.compression == 1 else cell

    grid = Grid(axes, base, encoders=schemes, mechanisms=mechanisms, seeds=seeds, adjust=unsketched)

    def judge(table: SweepTable, slack: float) -> Verdict:
        rows = [row for row in table.summary() if row.interval is not None]
        margins, products = [], []
        for row in rows:
            bits = row.extra["bits_per_parameter"]
            assert row.interval is not None
            margins.append(_scaled(row.interval, 2.0 ** (2 * bits)))
            products.append(_scaled(row.interval, bits))
        least = [min(found, key=lambda i: i.mean) for found in (margins, products)]
        laws = [
            Law("least error over 2^(−2B/d), all schemes", least[0], 1.0, math.inf),
            Law("least error × B/d, unbiased schemes", least[1], 1.0, math.inf),
        ]
        return judge_laws(f"No scheme errs less than the bounds, {len(rows)} settings", laws)

    def draw(table: SweepTable, slack: float) -> dict[str, Any]:
        from experiments.report.paper_figures import draw_bounds

        return {"": draw_bounds(table)}

    return [Asked("bits against error", grid, [judge], draw)]


def _scaled(interval: Interval, factor: float) -> Interval:
    low, mean, high = (factor * v for v in (interval.low, interval.mean, interval.high))
    return Interval(mean, low, high, interval.n, interval.geometric)


# --- the lemmas


def lemmas(setting: Setting) -> list[Finding]:
    """Measure the moments, the tail and the clip of the sketch, and its inverse's norm."""
    count = 200 if setting.quick else 2000
    d, w, t, factor = 2000, 40, 10, 1.1
    m = t * w
    rng = np.random.default_rng(setting.first_seed)
    g, h = (x / np.linalg.norm(x) for x in rng.standard_normal((2, d)))
    h = 0.6 * g + 0.8 * h
    names = ("product", "square", "variance", "inverse", "length")
    found: dict[str, list[float]] = {name: [] for name in names}
    for k in range(count):
        seed = setting.first_seed + k
        S = (
            CountSketchEncoder(n_components=m, n_rows=t, random_state=seed)
            .fit_dimension(d)
            .operator_
        )
        Sg, Sh = S.matvec(g), S.matvec(h)
        found["product"].append(float(Sg @ Sh))
        found["square"].append(float(Sg @ Sh - g @ h) ** 2)
        found["variance"].append(float(np.sum((S.rmatvec(Sg) - g) ** 2)))
        v = Sg  # on its way to the direction that the transpose lengthens most
        for _ in range(20):
            v = S.matvec(S.rmatvec(v))
            v /= np.linalg.norm(v)
        found["inverse"].append(float(np.sum(S.rmatvec(v) ** 2)))
        found["length"].append(float(Sg @ Sg))
    lengths = np.array(found.pop("length"))
    means = {name: mean_of(dict(enumerate_draws(v)), geometric=False) for name, v in found.items()}
    gh = float(g @ h)
    laws = [
        _near("E⟨Sg, Sh⟩ over ⟨g, h⟩", _scaled(means["product"], 1 / gh), 1.0, 0.02),
        Law("variance of ⟨Sg, Sh⟩ · m", _scaled(means["square"], m), -math.inf, 2.0),
        Law("E‖SᵀSg − g‖² · m/d", _scaled(means["variance"], m / d), -math.inf, 2.0),
        _near("E‖SᵀSg − g‖² over (d − 1)/m", _scaled(means["variance"], m / (d - 1)), 1.0, 0.02),
        Law("E‖Sᵀv‖² · m/d, worst v for S", _scaled(means["inverse"], m / d), -math.inf, 8.0),
        Law("share beyond the clip, ‖Sg‖ ≥ 1.1", _share(lengths >= factor**2), -math.inf, 0.05),
    ]
    tail = _tail(lengths, m)
    table = TextTable(
        f"d = {d}, t = {t}, m = {m}, {count} sketches",
        ("quantity", "measured (95 % interval)", "wanted", "verdict"),
        tuple((law.quantity, law.found, law.wanted, law.outcome) for law in [*laws, *tail]),
    )
    from experiments.report.paper_figures import draw_tail

    return [
        Finding(
            "lemmas",
            "Does the sketch keep products and lengths, and its transpose norms?",
            pictures={"": Picture(draw_tail(list(lengths), m), "tail of the sketch's length")},
            tables=[table],
            verdicts=[
                judge_laws(
                    "The sketch's products and variance are as the lemma bounds them.", laws[:4]
                ),
                judge_laws("Lengths grow beyond 1 + α as seldom as exp(−α²m/8).", tail),
                judge_laws("The inverse sketch multiplies squares by at most 8d/m.", laws[4:5]),
                judge_laws("The clip at 1.1c rarely clips.", laws[5:]),
            ],
        )
    ]


def enumerate_draws(values: Sequence[float]) -> list[tuple[tuple[int, int], float]]:
    """Return values by draw, as statistics want them."""
    return [((0, k), value) for k, value in enumerate(values)]


def _share(hits: Any) -> Interval:
    """Return a share with its exact 95 % interval."""
    from scipy.stats import binomtest

    n, k = len(hits), int(np.sum(hits))
    reach = binomtest(k, n).proportion_ci(0.95)
    return Interval(k / n, float(reach.low), float(reach.high), n)


def _tail(lengths: Any, m: int) -> list[Law]:
    return [
        Law(f"P(‖Sg‖² ≥ 1 + α), α = {a:g}", _share(lengths >= 1 + a), -math.inf, tail_bound(a, m))
        for a in (0.1, 0.15, 0.2, 0.25)
    ]


def tail_bound(alpha: float, m: int) -> float:
    """Return exp(−α²m/8), of the form of the lemma: m = Θ(log(1/β)/α²)."""
    return math.exp(-(alpha**2) * m / 8)


# --- the noise


def noise_to_epsilon(setting: Setting) -> list[Finding]:
    """Tabulate ε for the paper's z, for all observers."""
    from experiments.report.epsilon_table import PRESETS, epsilon_table
    from experiments.report.paper_figures import draw_epsilon

    rows = {name: epsilon_table(preset) for name, preset in PRESETS.items()}
    columns = ("noise_multiplier", "server", "release", "trusted_server")
    heads = ("setting", "z", "server", "release, fixed cohorts", "trusted server, Poisson")
    body = tuple(
        (name, *(f"{getattr(row, column):.4g}" for column in columns))
        for name, found in rows.items()
        for row in found
    )  # fmt: skip
    verdicts = []
    for name, found in rows.items():
        reached = [row for row in found if row.release <= 10]
        half = next(row for row in found if row.noise_multiplier == 0.5)
        lines = [
            f"z = 0.5: ε = {half.release:.3g} to anyone who sees the models only, "
            f"{half.server:.3g} against the server, {half.trusted_server:.3g} were it trusted"
        ]
        if reached:
            least = min(row.noise_multiplier for row in reached)
            lines.append(
                f"ε = 10 to who sees the models only: from z = {least:g} on, of those tabled"
            )
        outcome = "holds" if half.release <= 11 else "does not hold"
        claim = f"z = 0.5 is ε = 5 to 10 ({name}, n = 100, 1500 rounds, δ = 1/N)."
        verdicts.append(Verdict(claim, outcome, tuple(lines)))
    return [
        Finding(
            "noise-to-epsilon",
            "What do the paper's noise multipliers promise?",
            pictures={"": Picture(draw_epsilon(rows), "ε against z for every observer")},
            tables=[TextTable("ε of 1500 rounds", heads, body, 1)],
            verdicts=verdicts,
        )
    ]
