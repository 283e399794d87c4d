"""One private round: what it is, the parts it works with, who says what to whom, what comes out.

``spec`` says what a round is; ``config`` is what its parties exchange; ``parts`` are encoder and
mechanism at work; ``run`` plays all parties in one process and returns an ``aggregate``.
"""
