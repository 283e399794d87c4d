"""Sparse recovery: given A, y and the noise level, find x with y = A x + noise.

This package knows nothing of privacy, clients or experiments and can be used by itself.
"""

from __future__ import annotations
