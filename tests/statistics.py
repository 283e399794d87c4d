"""Statistical assertions at one false-alarm rate."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6


def assert_mean(samples, expected, tests=1):
    """Student's t-test of the mean of ``samples``, with a Bonferroni factor for ``tests``."""
    samples = np.asarray(samples, dtype=float)
    error = stats.sem(samples)
    critical = stats.t.isf(FALSE_ALARM / tests / 2, len(samples) - 1)
    assert abs(samples.mean() - expected) <= critical * error, (
        f"mean {samples.mean():.6g} ± {error:.2g}, expected {expected:.6g}"
    )


def assert_counts(observed, expected):
    """Pearson's chi-square test of counts against expected counts of the same sum."""
    observed, expected = np.ravel(observed), np.ravel(expected)
    statistic = np.sum((observed - expected) ** 2 / expected)
    p = stats.chi2.sf(statistic, len(observed) - 1)
    assert p >= FALSE_ALARM, f"chi-square {statistic:.6g} at {len(observed) - 1} d.f., p = {p:.2g}"


def gaussian_dp_lower_bound(with_canary, without, threshold, confidence=0.99):
    """Return a lower bound on μ of Gaussian DP from an attack "more than ``threshold``".

    Clopper–Pearson bounds on its two errors, each at half of 1 − ``confidence``; the threshold
    must be fixed beforehand.
    """
    level = 1 - (1 - confidence) / 2
    missed = int((with_canary <= threshold).sum())
    alarms = int((without > threshold).sum())
    miss = stats.beta.ppf(level, missed + 1, len(with_canary) - missed)
    alarm = stats.beta.ppf(level, alarms + 1, len(without) - alarms)
    return stats.norm.isf(alarm) - stats.norm.ppf(miss)
