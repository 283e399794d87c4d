"""Numba kernels of the Gaussian ensemble: normals from counters, by the Box–Muller transform."""

from __future__ import annotations

import math

import numpy as np

from solvers.compiling_kernels import numba
from sparse_secagg._hash_kernels import word

_11 = np.uint64(11)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_UNIT = 2.0**-53


@numba.njit(cache=True, nogil=True)
def fill_columns(key, J, scale, out):
    """Write the columns J of the ensemble, times ``scale``, to the rows of ``out`` (len(J), m).

    Rows 2p and 2p+1 of column j are r·cos θ and r·sin θ with r² = −2 ln u, θ = 2πv, where u in
    (0, 1] and v in [0, 1) have the top 53 bits of the words 2(j·P + p) and 2(j·P + p) + 1, and P =
    ⌈m/2⌉: any column can be made by itself.
    """
    m = out.shape[1]
    n_pairs = np.uint64((m + 1) // 2)
    for k in range(J.shape[0]):
        counter = _TWO * np.uint64(J[k]) * n_pairs
        column = out[k]
        for i in range(0, m, 2):
            u = np.float64((word(key, counter) >> _11) + _ONE) * _UNIT
            v = np.float64(word(key, counter + _ONE) >> _11) * _UNIT
            counter += _TWO
            radius = scale * math.sqrt(-2.0 * math.log(u))
            angle = 2.0 * math.pi * v
            column[i] = radius * math.cos(angle)
            if i + 1 < m:
                column[i + 1] = radius * math.sin(angle)
