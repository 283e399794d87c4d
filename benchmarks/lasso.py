"""The Lasso against its peers, from adelie to PyLops: same data, same certifier, one run.

Each package is run at the loosest of its own tolerances (in factors of ten) that reaches the
certified gap, and only that run is timed, in turn with the others. The certifier is a NumPy
function of this file, which no solver calls. Compilation happens before the clock starts.

Environment: ``LASSO_SIZES`` (such as ``500x5000,4000x50000``), ``LASSO_SEEDS`` (a number),
``LASSO_ALPHAS`` (of ``noise,0.5,0.3,0.1,0.03``) and ``LASSO_PARTS`` (of
``peers,fista,batch,storage,kernels``) select a part of the work. 4000x50000 is run on request: its
peers take half an hour.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import solvers
from benchmarks.harness import Report, seconds, seconds_interleaved
from solvers.parallel import n_threads

SPARSITY = {500: 20, 2000: 50, 4000: 100}
NOISE = 0.15  # norm of the noise over norm of the signal
FRACTIONS: list[float | None] = [
    None,
    0.5,
    0.3,
    0.1,
    0.03,
]  # of alpha_max; None: the level of the noise
TOLERANCES = [1e-4, 1e-6]


@dataclass(frozen=True)
class Problem:
    """y = A x + noise with A Gaussian, in Fortran order, which the peers need to avoid a copy."""

    A: np.ndarray
    y: np.ndarray
    alpha_max: float
    alpha_noise: float

    @classmethod
    def draw(cls, m: int, d: int, seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        A = np.asfortranarray(rng.standard_normal((d, m)).T)
        A /= np.sqrt(m)
        x = np.zeros(d)
        s = SPARSITY.get(m, max(5, m // 40))
        x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
        noise = NOISE * np.linalg.norm(x) / np.sqrt(m) * rng.standard_normal(m)
        y = A @ x + noise
        return cls(A, y, np.abs(A.T @ y).max() / m, np.abs(A.T @ noise).max() / m)

    def relative_gap(self, x: np.ndarray, alpha: float) -> float:
        """Certify x: primal minus dual over ||y||^2 / (2m), in float64."""
        m, y = len(self.y), self.y
        r = y - self.A @ np.asarray(x, dtype=np.float64)
        u = r * min(1.0, m * alpha / np.abs(self.A.T @ r).max())
        primal = r @ r / (2 * m) + alpha * np.abs(x).sum()
        dual = (y @ y - (y - u) @ (y - u)) / (2 * m)
        return (primal - dual) / (y @ y / (2 * m))


Fit = Callable[[Problem, float, float], np.ndarray]


def _in_turn(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Least time of each function, over four rounds in which each has its turn.

    A run of a few milliseconds is at the mercy of the machine, whose troubles last longer than
    that: a turn takes ten of those, and the rounds see it at different times.
    """
    least = dict.fromkeys(functions, np.inf)
    for turn in range(4):
        for name, function in functions.items():
            if turn > 0 and least[name] > (0.3 if turn > 1 else 1.0):
                continue  # long enough to see the machine as it is
            runs = 10 if least[name] < 0.05 else 1
            least[name] = min(least[name], seconds(function, repeats=runs))
    return least


def _ours(problem: Problem, alpha: float, tol: float) -> np.ndarray:
    return solvers.get("working_set", alpha=alpha, tol=tol).fit(problem.A, problem.y).coef_


def _peers() -> dict[str, tuple[Fit, list[float]]]:
    """Return each peer with its tolerances from loose to tight."""
    import celer
    import skglm
    import sklearn.linear_model

    def sklearn_fit(problem: Problem, alpha: float, tol: float) -> np.ndarray:
        model = sklearn.linear_model.Lasso(alpha, tol=tol, fit_intercept=False, max_iter=100_000)
        return model.fit(problem.A, problem.y).coef_

    def celer_fit(problem: Problem, alpha: float, tol: float) -> np.ndarray:
        return celer.Lasso(alpha, tol=tol, fit_intercept=False).fit(problem.A, problem.y).coef_

    def skglm_fit(problem: Problem, alpha: float, tol: float) -> np.ndarray:
        # its tolerance bounds the violation of the optimality condition, in units of alpha here
        model = skglm.Lasso(alpha, tol=tol * alpha, fit_intercept=False)
        return model.fit(problem.A, problem.y).coef_

    decades = [10.0**-k for k in range(1, 11)]
    return {
        "sklearn": (sklearn_fit, decades[2:]),
        "celer": (celer_fit, decades[2:]),
        "skglm": (skglm_fit, decades),
        **_peers_apart(decades),
    }


def _peers_apart(decades: list[float]) -> dict[str, tuple[Fit, list[float]]]:
    """Return the peers that are installed by themselves, where they are.

    ``pip install --no-deps adelie && pip install ipython``: it asks for NumPy below 2 and runs on
    later ones. ``pip install glmnetpp``: the C++ of R's glmnet.
    """
    found: dict[str, tuple[Fit, list[float]]] = {}
    if importlib.util.find_spec("adelie"):
        import adelie

        def adelie_fit(problem: Problem, alpha: float, tol: float) -> np.ndarray:
            # alone at its penalty: a path to it was slower; the states of a path are not needed
            state = adelie.grpnet(
                adelie.matrix.dense(problem.A, method="naive", n_threads=n_threads()),
                adelie.glm.gaussian(problem.y),
                lmda_path=[alpha],
                tol=tol,
                intercept=False,
                early_exit=False,
                n_threads=n_threads(),
                progress_bar=False,
            )
            return state.betas.toarray()[-1]

        found["adelie"] = adelie_fit, [*decades[2:], 1e-12, 1e-14]
    if importlib.util.find_spec("glmnetpp"):
        import glmnetpp

        def glmnet_fit(problem: Problem, alpha: float, tol: float) -> np.ndarray:
            options = {"alpha": 1.0, "standardize": False, "intercept": False, "thresh": tol}
            return glmnetpp.fit_gaussian_ridge(problem.A, problem.y, alpha, **options)[1]

        found["glmnet"] = glmnet_fit, [*decades[2:], 1e-12, 1e-14]
    return found


def _loosest(
    fit: Fit, tolerances: list[float], problem: Problem, alpha: float, gap: float
) -> tuple[float | None, float]:
    """Return the loosest tolerance whose solution is certified, and its gap."""
    reached = np.inf
    for tol in tolerances:
        if tol > 100 * max(gap, 1e-3):
            continue
        reached = problem.relative_gap(fit(problem, alpha, tol), alpha)
        if reached <= gap:
            return tol, reached
    return None, reached


def _sizes(quick: bool) -> list[tuple[int, int]]:
    text = os.environ.get("LASSO_SIZES") or ("200x1000" if quick else "500x5000,2000x20000")
    return [tuple(map(int, size.split("x"))) for size in text.split(",")]  # type: ignore[misc]


def _fractions() -> list[float | None]:
    chosen = os.environ.get("LASSO_ALPHAS")
    if not chosen:
        return FRACTIONS
    return [None if text == "noise" else float(text) for text in chosen.split(",")]


def working_set_against_peers(quick: bool, console: Console) -> list[Report]:
    peers = _peers()
    seeds = int(os.environ.get("LASSO_SEEDS", "1" if quick else "3"))
    small = Problem.draw(60, 200, 0)
    for fit, _ in peers.values():  # compile
        fit(small, 0.1 * small.alpha_max, 1e-3)
    _ours(small, 0.1 * small.alpha_max, 1e-3)
    return [_against_peers(m, d, seeds, peers, console) for m, d in _sizes(quick)]


def _against_peers(m: int, d: int, seeds: int, peers: dict, console: Console) -> Report:
    report = Report(
        f"Lasso {m}x{d} to a certified relative gap: milliseconds, median over {seeds} seeds",
        ["alpha", "gap", "ours", *peers, "ratio", "worst", "support", "passes"],
    )
    problems = [Problem.draw(m, d, seed) for seed in range(seeds)]
    passes = [_in_turn({"pass": lambda p=p: p.A.T @ p.y})["pass"] for p in problems]
    for fraction in _fractions():
        for gap in TOLERANCES:
            rows = [
                _one_row(problem, one_pass, fraction, gap, peers)
                for problem, one_pass in zip(problems, passes)
            ]
            middle = [statistics.median(column) for column in zip(*rows)]
            support, ours, in_passes, *times, ratio, _ = middle
            level = "noise" if fraction is None else f"{fraction} max"
            report.add(
                level,
                f"{gap:.0e}",
                *[float(f"{1e3 * t:.3g}") for t in (ours, *times)],
                round(ratio, 1),
                f"{max(row[-1] for row in rows):.0e}",
                int(support),
                round(in_passes, 1),
            )
            console.print(f"{m}x{d} {level} {gap:.0e}: {ratio:.1f} times the best peer")
    report.notes += [
        f"the noise has {NOISE} of the norm of the signal; passes: ours over one A^T y;",
        "ratio: best peer over ours, median over seeds; worst: largest gap of all solvers.",
        "glmnet copies its matrix once; inf: no tolerance of its own reached the gap.",
    ]
    return report


def _one_row(
    problem: Problem, one_pass: float, fraction: float | None, gap: float, peers: dict
) -> list[float]:
    alpha = problem.alpha_noise if fraction is None else fraction * problem.alpha_max
    x = _ours(problem, alpha, gap)
    worst = problem.relative_gap(x, alpha)
    runs = {"ours": lambda: _ours(problem, alpha, gap)}
    for name, (fit, tolerances) in peers.items():
        tol, reached = _loosest(fit, tolerances, problem, alpha, gap)
        worst = max(worst, reached)
        if tol is not None:
            runs[name] = lambda fit=fit, tol=tol: fit(problem, alpha, tol)
    least = _in_turn(runs)
    ours = least["ours"]
    times = [least.get(name, np.inf) for name in peers]
    return [np.count_nonzero(x), ours, ours / one_pass, *times, min(times) / ours, worst]


def fista_against_pylops(quick: bool) -> Report:
    from pylops import MatrixMult
    from pylops.optimization.sparsity import fista

    report = Report(
        "FISTA to a certified relative gap, against PyLops' FISTA",
        ["m x d", "alpha", "gap", "ours ms", "steps", "PyLops ms", "its steps", "ratio"],
    )
    m, d = (200, 1000) if quick else (500, 5000)
    problem = Problem.draw(m, d, 0)
    A = np.ascontiguousarray(problem.A)
    operator = MatrixMult(A)
    for fraction in (None, 0.1):
        for gap in TOLERANCES:
            alpha = problem.alpha_noise if fraction is None else fraction * problem.alpha_max
            solver = solvers.get("fista", alpha=alpha, tol=gap).fit(A, problem.y)
            assert problem.relative_gap(solver.coef_, alpha) <= gap
            steps = _pylops_steps(fista, operator, problem, alpha, gap)
            times = seconds_interleaved(
                {
                    "ours": lambda solver=solver: solver.fit(A, problem.y),
                    "pylops": lambda alpha=alpha, steps=steps: fista(
                        operator, problem.y, niter=steps, eps=2 * m * alpha, tol=0.0
                    ),
                },
                repeats=3,
            )
            report.add(
                f"{m}x{d}",
                "noise" if fraction is None else f"{fraction} max",
                f"{gap:.0e}",
                1e3 * times["ours"],
                solver.n_iter_,
                1e3 * times["pylops"],
                steps,
                times["pylops"] / times["ours"],
            )
    report.notes.append("PyLops runs exactly the steps it needs, found beforehand, unchecked.")
    return report


def _pylops_steps(fista: Any, operator: Any, problem: Problem, alpha: float, gap: float) -> int:
    """Return how many steps PyLops needs, looking at every fifth."""

    class Reached(Exception):
        pass

    count = 0

    def look(x: np.ndarray) -> None:
        nonlocal count
        count += 1
        if count % 5 == 0 and problem.relative_gap(x, alpha) <= gap:
            raise Reached

    eps = 2 * len(problem.y) * alpha  # PyLops' objective is twice 1/2 ||y - A x||^2 + ...
    with contextlib.suppress(Reached):
        fista(operator, problem.y, niter=5000, eps=eps, tol=0.0, callback=look)
    return count


def batches(quick: bool) -> Report:
    report = Report(
        "64 right-hand sides, working_set at the noise level, gap 1e-6",
        ["m x d", "signals", "one at a time ms each", "batched ms each", "ratio"],
    )
    m, d = (200, 1000) if quick else (2000, 20000)
    problem = Problem.draw(m, d, 0)
    s = SPARSITY.get(m, max(5, m // 40))
    for kind in ("same support", "independent"):
        rng = np.random.default_rng(1)
        X = np.zeros((64, d))
        support = rng.choice(d, s, replace=False)
        for x in X:
            x[support if kind == "same support" else rng.choice(d, s, replace=False)] = (
                rng.standard_normal(s)
            )
        noise = NOISE * np.sqrt(s / m)
        Y = X @ problem.A.T + noise * rng.standard_normal((64, m))
        solver = solvers.get("working_set", tol=1e-6).fit(problem.A, Y[0], noise_std=noise)
        alone = solvers.get("working_set", alpha=solver.alpha_, tol=1e-6)
        few = Y[:8]
        times = seconds_interleaved(
            {
                "loop": lambda few=few, alone=alone: [alone.fit(problem.A, y) for y in few],
                "batch": lambda solver=solver, Y=Y: solver.decode(Y),
            },
            repeats=3,
        )
        worst = max(
            problem_gap(problem.A, y, x, solver.alpha_) for y, x in zip(Y, solver.decode(Y))
        )
        assert worst <= 1.001e-6, worst
        each, batched = times["loop"] / len(few), times["batch"] / len(Y)
        report.add(f"{m}x{d}", kind, 1e3 * each, 1e3 * batched, each / batched)
    report.notes.append("one at a time: the mean over 8 of them; all 64 gaps certified.")
    return report


def storage(quick: bool) -> Report:
    """Time the default fit, alpha from the known noise, on A in either order and precision."""
    report = Report(
        "working_set by how A is stored, alpha from the noise, gap 1e-6",
        ["m x d", "order", "type", "MB", "ms", "gap"],
    )
    m, d = (200, 1000) if quick else (2000, 20000)
    problem = Problem.draw(m, d, 0)
    noise = NOISE * np.linalg.norm(problem.y) / np.sqrt(m)
    for order in ("F", "C"):
        for dtype in (np.float64, np.float32):
            A = np.asarray(problem.A, dtype=dtype, order=order)
            solver = solvers.get("working_set", tol=1e-6).fit(A, problem.y, noise)  # compiles
            fit = {"ours": lambda A=A, solver=solver: solver.fit(A, problem.y, noise)}
            elapsed = _in_turn(fit)["ours"]
            gap = problem_gap(A.astype(np.float64), problem.y, solver.coef_, solver.alpha_)
            report.add(
                f"{m}x{d}", order, np.dtype(dtype).name, A.nbytes / 1e6, 1e3 * elapsed, f"{gap:.0e}"
            )
    report.notes.append("gap: certified in float64 on the numbers as stored.")
    return report


def problem_gap(A: np.ndarray, y: np.ndarray, x: np.ndarray, alpha: float) -> float:
    return Problem(A, y, 0.0, 0.0).relative_gap(x, alpha)


def kernels(quick: bool) -> Report:
    """One proximal step and extrapolation, compiled and in NumPy, on d coordinates."""
    from solvers.lasso._kernels import extrapolate, proximal_step

    report = Report(
        "FISTA's vector work, compiled and in NumPy", ["d", "NumPy ms", "ours ms", "ratio"]
    )
    for d in [10_000] if quick else [10_000, 1_000_000]:
        rng = np.random.default_rng(0)
        z, slope, x = rng.standard_normal((3, d))
        new, out = np.empty(d), np.empty(d)

        def compiled(z=z, slope=slope, x=x, new=new, out=out) -> None:  # type: ignore[no-untyped-def]
            proximal_step(z, slope, x, 0.1, 1.0, False, new)
            extrapolate(new, x, 0.5, out)

        def twin(z=z, slope=slope, x=x) -> np.ndarray:  # type: ignore[no-untyped-def]
            v = z + 0.1 * slope
            new = np.sign(v) * np.maximum(np.abs(v) - 1.0, 0.0)
            change = new - z
            _ = change @ change, -change @ (new - x)
            return new + 0.5 * (new - x)

        compiled()
        np.testing.assert_allclose(out, twin(), atol=1e-12)
        times = seconds_interleaved({"numpy": twin, "ours": compiled}, repeats=11)
        report.add(d, 1e3 * times["numpy"], 1e3 * times["ours"], times["numpy"] / times["ours"])
    return report


def run(quick: bool) -> list[Report]:
    console = Console(stderr=True)
    parts: dict[str, Callable[[], list[Report]]] = {
        "peers": lambda: working_set_against_peers(quick, console),
        "fista": lambda: [fista_against_pylops(quick)],
        "batch": lambda: [batches(quick)],
        "storage": lambda: [storage(quick)],
        "kernels": lambda: [kernels(quick)],
    }
    chosen = os.environ.get("LASSO_PARTS", ",".join(parts)).split(",")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [report for name in chosen for report in parts[name]()]
