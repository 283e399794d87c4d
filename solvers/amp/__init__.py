"""Message passing: the iteration, what it knows of x, and what it can reach."""

from solvers.amp.ensemble import Ensemble
from solvers.amp.message_passing import AMP, AMPSolution, effective_noise

__all__ = ["AMP", "AMPSolution", "Ensemble", "effective_noise"]
