"""The Lasso and its solvers: working sets, proximal gradient, the square root, adapters."""

from solvers.lasso.debiasing import Debiased, debias, debiased
from solvers.lasso.family import LassoPath, LassoSolution, LassoSolver
from solvers.lasso.problem import (
    Certificate,
    LassoProblem,
    Minimum,
    alpha_from_noise,
    alpha_of_the_paper,
    certificate,
    certify,
    dual_norm,
    feasible,
    objective,
)
from solvers.lasso.proximal import FISTA, ISTA
from solvers.lasso.square_root import SqrtLasso
from solvers.lasso.working_set import WorkingSet

__all__ = [
    "FISTA",
    "ISTA",
    "Certificate",
    "Debiased",
    "LassoPath",
    "LassoProblem",
    "LassoSolution",
    "LassoSolver",
    "Minimum",
    "SqrtLasso",
    "WorkingSet",
    "alpha_from_noise",
    "alpha_of_the_paper",
    "certificate",
    "certify",
    "debias",
    "debiased",
    "dual_norm",
    "feasible",
    "objective",
]
