"""What the planner knows: clips, predicted errors, noise, wire costs, and the search over schemes.

:func:`sparse_secagg.plan` is the way in. A decoder's prediction is one function in
:data:`~sparse_secagg.planning.predictions.PREDICTIONS`.
"""
