"""Sweeps show what message passing can reach, and whether intervals cover."""

import numpy as np

from experiments.sweeps.draws import Clients, draw_round, measure_round
from sparse_secagg import RoundSpec


def measured(decoder):
    rng = np.random.default_rng(0)
    mean = np.where(rng.random(2000) < 0.02, 0.05 * rng.standard_normal(2000), 0.0)
    rows = mean + 0.3 / np.sqrt(2000) * rng.standard_normal((200, 2000))
    spec = RoundSpec(encoder="hadamard", compression=4, epsilon=8.0, n_bits=16)
    clients = Clients(rows, rows.mean(axis=0), {})
    return measure_round(draw_round(clients, spec, seed=0), decoder, top=20).metrics


def test_the_limit_stands_beside_message_passing():
    metrics = measured("amp")
    assert 0.7 < metrics["relative_error"] / metrics["theory_limit"] < 1.4
    assert "covered" not in metrics
    assert measured("linear")["theory_limit"] is None


def test_intervals_of_unbiased_decoders_are_judged():
    metrics = measured("amp:debias")
    assert 0.93 < metrics["covered"] < 0.97
    assert metrics["interval_width"] > 0
    assert metrics["theory_limit"] is None
