"""Decoding an aggregate as often as one likes, and how sure each number of it is.

Whatever is computed from the released sketch is post-processing: it costs no privacy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import solvers
from solvers.operators import Operator
from sparse_secagg.rounds import make_decoder

__all__ = ["Decodable"]


class Decodable:
    """What holds a sketch ŷ ≈ Sμ + noise, and decodes it.

    Attributes
    ----------
    operator_ : Operator of shape (m, d)
        The public map S.
    sketch_ : ndarray of shape (m,)
        ŷ.
    noise_std_ : float
        Standard deviation of the noise in each coordinate.
    solver_ : Solver
        The fitted solver behind ``mean_``.
    """

    decoder: Any
    operator_: Operator
    sketch_: NDArray[np.float64]
    noise_std_: float
    solver_: Any

    def decode(self, decoder: Any = None, *, return_std: bool = False) -> Any:
        """Decode the round's sketch with any solver; costs no privacy and leaves ``mean_`` alone.

        Parameters
        ----------
        decoder : str or Solver, optional
            ``self.decoder`` by default.
        return_std : bool, default=False
            Return the standard error of each entry as well; the decoder must then be unbiased,
            such as "linear" or one with ``debias=True``.

        Returns
        -------
        ndarray of shape (d,), or two of them
            The estimate, and with ``return_std`` its standard errors.
        """
        check_is_fitted(self)
        solver = self._fitted(self.decoder if decoder is None else decoder)
        if not return_std:
            return solver.coef_
        if solver.std_err_ is None:
            raise ValueError(
                f"decoder={solver} shrinks its estimate, which has no standard error; use an "
                "unbiased one: 'linear', or a solver with debias=True."
            )
        return solver.coef_, np.broadcast_to(solver.std_err_, solver.coef_.shape)

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> NDArray[np.float64]:
        """Return an interval for each entry of the clipped clients' mean.

        The intervals stand around the unbiased estimate of the decoder (of the linear one, if it
        has none), not around ``mean_``. They cover over draws of sketch and noise, each entry
        with probability ``level``; entries that are looked at because they came out large are
        covered less often, unless all are covered at once.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval covers.
        simultaneous : bool, default=False
            Cover all entries together with this probability.

        Returns
        -------
        ndarray of shape (d, 2)
        """
        solver = self._unbiased()
        m = self.operator_.shape[0] if simultaneous else None
        return solvers.confidence_interval(
            solver.coef_, solver.std_err_, level, simultaneous, n_measurements=m
        )

    def discoveries(
        self, fdr: float | None = None, *, family_wise: float | None = None
    ) -> NDArray[np.int64]:
        """Return the entries that are not zero, the most significant first.

        Parameters
        ----------
        fdr : float, optional
            Bound on the expected share of zeros among them; 0.05 by default.
        family_wise : float, optional
            Bound on the probability of any zero among them, in place of ``fdr``.
        """
        solver = self._unbiased()
        return solvers.discoveries(solver.coef_, solver.std_err_, fdr, family_wise)

    def _fitted(self, decoder: Any) -> Any:
        solver = make_decoder(decoder)
        return solver.fit(self.operator_, self.sketch_, noise_std=self.noise_std_)

    def _unbiased(self) -> Any:
        """Return the decoder's unbiased form, fitted; the linear one where it has none."""
        check_is_fitted(self)
        if self.solver_.std_err_ is not None:
            return self.solver_
        if "debias" in self.solver_.get_params(deep=False):
            unbiased = self._fitted(make_decoder(self.solver_).set_params(debias=True))
            if unbiased.std_err_ is not None:
                return unbiased
        return self._fitted("linear")
