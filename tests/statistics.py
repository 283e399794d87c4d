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
