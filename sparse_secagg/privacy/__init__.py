"""Privacy: Rényi curves, conversion, sampling, observers and the ledger.

A mechanism is (α, ε(α))-RDP; R rounds add their curves; a curve gives ε at a δ. What a round
reveals to whom is one object, :class:`RoundPrivacy`.
"""

from sparse_secagg.privacy.conversion import rdp_to_dp, rdp_to_zcdp
from sparse_secagg.privacy.curves import (
    DEFAULT_ORDERS,
    INTEGER_ORDERS,
    ddg_grid_rdp,
    ddg_rdp,
    discrete_sum_gap,
    gaussian_rdp,
    norm_bound,
    sensitivity_factor,
    skellam_grid_rdp,
    skellam_rdp,
)
from sparse_secagg.privacy.ledger import Ledger
from sparse_secagg.privacy.observers import (
    OBSERVERS,
    Costed,
    NoisySum,
    RoundPrivacy,
    describe_observer,
)
from sparse_secagg.privacy.sampling import (
    Sampling,
    fixed_cohort_rdp,
    poisson_subsampled_rdp,
    subsampled_rdp_without_replacement,
)

__all__ = [
    "DEFAULT_ORDERS",
    "INTEGER_ORDERS",
    "OBSERVERS",
    "Costed",
    "Ledger",
    "NoisySum",
    "RoundPrivacy",
    "Sampling",
    "ddg_grid_rdp",
    "ddg_rdp",
    "describe_observer",
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
