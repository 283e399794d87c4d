"""Accounting under its short name: everything here lives in :mod:`sparse_secagg.privacy`."""

from sparse_secagg.privacy import (
    DEFAULT_ORDERS,
    INTEGER_ORDERS,
    Ledger,
    ddg_grid_rdp,
    ddg_rdp,
    discrete_sum_gap,
    fixed_cohort_rdp,
    gaussian_rdp,
    norm_bound,
    poisson_subsampled_rdp,
    rdp_to_dp,
    rdp_to_zcdp,
    sensitivity_factor,
    skellam_grid_rdp,
    skellam_rdp,
    subsampled_rdp_without_replacement,
)

__all__ = [
    "DEFAULT_ORDERS",
    "INTEGER_ORDERS",
    "Ledger",
    "ddg_grid_rdp",
    "ddg_rdp",
    "discrete_sum_gap",
    "fixed_cohort_rdp",
    "gaussian_rdp",
    "norm_bound",
    "poisson_subsampled_rdp",
    "rdp_to_dp",
    "rdp_to_zcdp",
    "sensitivity_factor",
    "skellam_grid_rdp",
    "skellam_rdp",
    "subsampled_rdp_without_replacement",
]
