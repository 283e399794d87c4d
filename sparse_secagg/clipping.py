"""Adaptive clipping, under the name that it had first; see :mod:`sparse_secagg.round.clipping`."""

from sparse_secagg.round.clipping import AdaptiveClip

__all__ = ["AdaptiveClip"]
