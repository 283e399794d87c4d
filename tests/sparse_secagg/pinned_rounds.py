"""Rounds and plans whose numbers are pinned: a given spec and seeds mean the same in every version.

``python -m tests.sparse_secagg.pinned_rounds`` prints the record; the file beside it was written by
version 0.1.0, before a round had a specification of its own.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparse_secagg import (
    AdaptiveClip,
    CentralGaussian,
    CountSketchEncoder,
    DiscreteGaussian,
    GaussianEncoder,
    HadamardEncoder,
    IdealSecAgg,
    MaskedSecAgg,
    PrivacyWarning,
    SparseSecAgg,
    ThresholdFeedback,
    plan,
)

N, D = 60, 300


def clients(seed: int = 0) -> np.ndarray:
    """Return the vectors of 60 clients with a common sparse part, some of them beyond the clip."""
    rng = np.random.default_rng(seed)
    X = 0.05 * rng.normal(size=(N, D))
    X[:, rng.choice(D, 6, replace=False)] += rng.normal(size=6)
    X[3] *= 10
    X[7, 5] = np.nan
    return X


def rounds() -> dict[str, Any]:
    """Return named settings: parameters of the estimator and, where given, of ``fit``."""
    layers = {"first": slice(0, 100), "rest": slice(100, D)}
    seeded = MaskedSecAgg(threshold=40, masks="seeded")
    weights = np.linspace(0.1, 2.0, N)
    return {
        "default": ({"encoder": "count_sketch", "decoder": "amp"}, {}),
        "gaussian, spectral": (
            {"encoder": "gaussian", "sketch_clip": "spectral", "decoder": "fista"},
            {},
        ),
        "gaussian, jl": ({"encoder": GaussianEncoder(n_components=40), "sketch_clip": "jl"}, {}),
        "hadamard": ({"encoder": "hadamard", "compression": 4, "decoder": "linear"}, {}),
        "identity": ({"encoder": "identity", "decoder": "linear"}, {}),
        "auto, dense": ({"encoder": "auto"}, {}),
        "auto, sparse": ({"encoder": "auto", "decoder": "working_set"}, {"sparse": True}),
        "layers": ({"encoder": "count_sketch", "layers": layers, "decoder": "linear"}, {}),
        "skellam": ({"encoder": "count_sketch", "mechanism": "skellam"}, {}),
        "central": ({"encoder": "count_sketch", "mechanism": "central"}, {}),
        "replace one, hadamard rotation": (
            {"encoder": "count_sketch", "adjacency": "replace_one", "rotation": "hadamard"},
            {},
        ),
        "noise multiplier, many bits": (
            {"encoder": CountSketchEncoder(n_components=45, n_rows=5), "noise_multiplier": 0.7}
            | {"n_bits": 22},
            {},
        ),
        "no noise": ({"encoder": "hadamard", "noise_multiplier": 0.0}, {}),
        "weights and dropouts": (
            {"encoder": "count_sketch"},
            {"sample_weight": weights, "dropouts": [1, 2, 30]},
        ),
        "masked": (
            {"encoder": "count_sketch", "secagg": seeded, "colluders": 5},
            {"dropouts": {"share": [4], "mask": [9, 10]}},
        ),
        "ideal with a threshold": (
            {"encoder": "count_sketch", "secagg": IdealSecAgg(threshold=0.5)},
            {"dropouts": [0, 59]},
        ),
        "min survivors": (
            {"encoder": HadamardEncoder(n_components=64), "min_survivors": 50, "colluders": 10},
            {"dropouts": [11]},
        ),
        "planned compression": (
            {"encoder": "count_sketch", "compression": None, "sparsity": 6, "epsilon": 5.0},
            {},
        ),
        "adaptive clip": ({"encoder": "count_sketch", "clip_norm": AdaptiveClip(0.5)}, {}),
        "feedback": (
            {"encoder": "count_sketch", "feedback": ThresholdFeedback(0.02), "decoder": "linear"},
            {},
        ),
        "mechanism given, float32": (
            {"encoder": "hadamard", "mechanism": DiscreteGaussian(epsilon=3.0, n_bits=20)},
            {"dtype": "float32"},
        ),
        "central given": (
            {"encoder": "gaussian", "mechanism": CentralGaussian(epsilon=2.0), "clip_norm": 2.0},
            {},
        ),
    }


def plans() -> dict[str, Any]:
    """Return named requests to the planner."""
    return {
        "identity": {"d": 1000, "n_clients": 1000},
        "large": {"d": 10**6, "n_clients": 1000, "delta": 1e-6, "n_bits": 16, "compression": 10},
        "sparse": {"d": 20000, "n_clients": 2000, "sparsity": 20},
        "sparse amp": {"d": 20000, "n_clients": 2000, "sparsity": 20, "decoder": "amp"},
        "lasso": {"d": 20000, "n_clients": 2000, "sparsity": 50, "decoder": "lasso"},
        "colluders": {"d": 5000, "n_clients": 300, "colluders": 30, "epsilon": 4.0},
        "masked": {"d": 5000, "n_clients": 300, "secagg": "masked"},
        "release": {"d": 5000, "n_clients": 100, "population": 3400, "rounds": 20}
        | {"observer": "release"},
        "skellam": {"d": 500, "n_clients": 200, "mechanism": "skellam", "adjacency": "replace_one"},
        "count sketch": {"d": 50000, "n_clients": 500, "encoder": "count_sketch", "n_rows": 8},
        "spectral": {"d": 2000, "n_clients": 500, "encoder": "gaussian", "sketch_clip": "spectral"},
        "target": {"d": 2000, "n_clients": 5000, "target_error": 0.5, "clip_norm": 3.0},
        "multiplier": {"d": 2000, "n_clients": 500, "noise_multiplier": 0.5, "sketch_clip": "jl"},
    }


def run_round(settings: dict[str, Any], data: dict[str, Any]) -> SparseSecAgg:
    """Fit twice, so that what is carried over counts, and return the estimator."""
    data = dict(data)
    X: Any = clients()
    if data.pop("sparse", False):
        X = sp.csr_array(np.where(np.abs(np.nan_to_num(X)) > 0.1, np.nan_to_num(X), 0))
    X = X.astype(data.pop("dtype", X.dtype))
    est = SparseSecAgg(**{"random_state": 5, "simulation_seed": 11, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est.fit(X, **data)
        return est.fit(X, **data)


def numbers_of_round(est: SparseSecAgg) -> dict[str, Any]:
    """Return what is pinned of a round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        planned = json.loads(est.plan_.to_json())
    return {
        "sketch": np.asarray(est.sketch_)[:12].tolist(),
        "sketch_norm": float(np.linalg.norm(est.sketch_)),
        "mean": np.asarray(est.mean_)[:12].tolist(),
        "mean_norm": float(np.linalg.norm(est.mean_)),
        "noise_std": est.noise_std_,
        "epsilon": repr(est.epsilon_),
        "zcdp_epsilon": repr(est.zcdp_epsilon_),
        "n_survivors": est.n_survivors_,
        "bits_per_client": est.bits_per_client_,
        "predicted_mse": planned["predicted_mse"],
        "gamma": planned["gamma"],
        "not_private": est.not_private_,
    }


def numbers_of_plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return what is pinned of a plan.

    The seed of the rotation is drawn anew, and the bytes of the masked protocol are its own affair.
    """
    document = json.loads(plan(**request).to_json())
    del document["parameters"]["seed"], document["protocol_bytes"], document["bytes_per_client"]
    return document


def record() -> dict[str, Any]:
    """Return every pinned number."""
    return {
        "rounds": {name: numbers_of_round(run_round(*args)) for name, args in rounds().items()},
        "plans": {name: numbers_of_plan(request) for name, request in plans().items()},
    }


if __name__ == "__main__":
    json.dump(record(), sys.stdout, indent=1)
