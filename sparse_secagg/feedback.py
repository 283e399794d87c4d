"""Error feedback, under the name that it had first; see :mod:`sparse_secagg.round.feedback`."""

from sparse_secagg.round.feedback import ThresholdFeedback

__all__ = ["ThresholdFeedback"]
