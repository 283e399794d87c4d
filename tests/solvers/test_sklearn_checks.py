"""scikit-learn's own checks of an estimator, on every solver that accepts arrays."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import solvers

# celer's and skglm's adapters only differ in one call from sklearn_lasso's.
NAMES = sorted(set(solvers.names()) - {"median", "celer", "skglm"})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([solvers.get(name) for name in NAMES])
def test_is_a_scikit_learn_regressor(estimator, check):
    check(estimator)
