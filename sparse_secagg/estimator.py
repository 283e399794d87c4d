"""SparseSecAgg: one private round as an estimator, and any number of decodings of its result.

``fit`` runs a :class:`~sparse_secagg.RoundSpec` over the rows of X and keeps the noisy mean sketch
ŷ ≈ Sμ + noise; ``decode`` inverts S with any solver, which costs no privacy.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from solvers.parallel import one_thread
from sparse_secagg.exceptions import PrivacyWarning
from sparse_secagg.parameters import RoundParameters, documented
from sparse_secagg.planner import Plan, describe_round
from sparse_secagg.privacy import DEFAULT_ORDERS
from sparse_secagg.round.aggregate import Aggregate, RoundResult
from sparse_secagg.round.dask_rows import is_dask_array
from sparse_secagg.round.diagnostics import Diagnostics
from sparse_secagg.round.parts import parts_of
from sparse_secagg.round.spec import RoundSpec, decoder_name
from sparse_secagg.secagg.registry import make_secagg

__all__ = ["Diagnostics", "RoundResult", "SparseSecAgg"]


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class SparseSecAgg(RoundParameters, BaseEstimator):
    """Private mean of many clients' vectors, from short integer sketches.

    Parameters
    ----------
    {parameters}
    ledger : Ledger or path, optional
        Charged by every ``fit`` before any message is made.
    random_state : int, RandomState, Generator or None, default=None
        Public randomness only: sketch and rotation. None draws it anew at every ``fit``. Error
        feedback needs an integer, so that S stays the same.
    simulation_seed : int, optional
        Seeds the private noise too: reproducible, and **not private**. For experiments.
    diagnostics : bool, default=False
        Whether ``fit`` compares its result with the data, for ``diagnostics_``; this takes another
        pass over them.
    n_jobs : int or None, default=None
        Blocks of clients that are encoded at a time, each on one thread; -1 for one per core. They
        run in threads, or wherever ``joblib.parallel_config`` says. None: one block after the
        other, on all threads. The result does not depend on it.
    verbose : bool, default=False
        Whether ``fit`` says on the console how many clients it has encoded.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
        Estimate of the mean of the clipped vectors, by ``decoder``.
    sketch_ : ndarray of shape (m,)
        The noisy mean sketch: all that was learnt from the clients.
    operator_ : Operator of shape (m, d)
        The public map S.
    solver_ : Solver
        The fitted decoder, with what it knows of itself (iterations, certificate, ``std_err_``).
    noise_std_ : float
        Standard deviation of the noise in each coordinate of ``sketch_``.
    epsilon_, zcdp_epsilon_ : float
        What the round cost against the server (and ``colluders``), with the noise that survived.
        With ``mechanism="central"``, whose server is trusted: what the release costs.
    privacy_ : RoundPrivacy
        The same and more, for every observer.
    rdp_ : ndarray
        The Rényi curve behind ``epsilon_`` at ``accounting.DEFAULT_ORDERS``.
    n_survivors_ : int
        Clients in the sum.
    bits_per_client_, bits_per_parameter_ : int, float
        Payload of a message, and the same divided by d.
    seed_ : int
        The public seed.
    clip_ : AdaptiveClip
        With adaptive clipping: its state, and the clip of the next round.
    aggregate_ : Aggregate
        The round's result, which can be saved, and decoded in another process.
    config_ : RoundConfig
        The round, as a server would broadcast it.
    result_ : RoundResult
        All of these as one record that prints as a table.
    diagnostics_ : Diagnostics
        With ``diagnostics=True``: counts and errors that depend on the data. Not private, not
        pickled.
    not_private_ : bool
        True for simulations and for rounds without noise.

    See Also
    --------
    RoundSpec : The same round as one frozen record, for programs.
    PrivateCounts : Counts of users by item.
    plan : What a round will cost and achieve.

    Notes
    -----
    Privacy is spent by every ``fit``; also by each one that ``GridSearchCV`` makes, which warns.
    Choose decoders with :meth:`decode` instead: it uses the released sketch only.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import SparseSecAgg
    >>> X = np.zeros((500, 2000))
    >>> X[:, :5] = 0.4
    >>> round = SparseSecAgg(epsilon=4.0, decoder="working_set").fit(X)
    >>> np.flatnonzero(round.mean_ > 0.2).tolist()
    [0, 1, 2, 3, 4]
    >>> round.bits_per_parameter_ <= 1.6
    True
    """

    ledger: Any = None
    random_state: Any = None
    simulation_seed: int | None = None
    diagnostics: bool = False
    n_jobs: int | None = None
    verbose: bool = False

    @property
    def spec(self) -> RoundSpec:
        """The round that ``fit`` runs."""
        return RoundSpec.of(self)

    @classmethod
    def from_plan(cls, p: Plan, **parameters: Any) -> Self:
        """Return an estimator that runs a plan.

        Parameters
        ----------
        p : Plan
            Made by :func:`~sparse_secagg.plan`.
        **parameters
            Further parameters of the estimator, such as ``random_state``.

        Examples
        --------
        >>> from sparse_secagg import SparseSecAgg, plan
        >>> SparseSecAgg.from_plan(plan(d=1000, n_clients=1000, epsilon=1.0)).encoder
        IdentityEncoder()
        """
        mechanism = p.make_mechanism()
        secagg = make_secagg(p.secagg)
        given = {"threshold": p.threshold, "neighbors": p.neighbors}
        secagg.set_params(**{name: value for name, value in given.items() if value is not None})
        settings: dict[str, Any] = {
            "encoder": p.make_encoder(),
            "compression": p.compression,
            "mechanism": mechanism,
            "epsilon": mechanism.epsilon,
            "delta": p.delta,
            "noise_multiplier": mechanism.noise_multiplier,
            "clip_norm": p.clip_norm,
            "n_bits": p.n_bits,
            "decoder": p.decoder,
            "prior": p.prior if p.decoder == "amp" else None,
            "secagg": secagg,
            "adjacency": p.parameters.adjacency,
            "rotation": p.parameters.rotation,
            "rounds": p.rounds,
            "sketch_clip": p.sketch_clip,
            "sparsity": p.sparsity,
        }
        return cls(**(settings | parameters))

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        dropouts: Any = None,
    ) -> Self:
        """Run one private round over the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix, recording or Dask array of shape (n_clients, d)
            One client a row. A row with NaN or Inf counts as zero. Rows are read in blocks. Those
            of a Dask array are encoded by the workers that hold them, and stay there.
        y : ignored
        sample_weight : array-like of shape (n_clients,), optional
            Public weights, scaled to at most 1 and applied before clipping.
        dropouts : optional
            Clients that leave: a list, a rate, or a mapping from stages to lists.
        """
        X = self._check_rows(X)
        if _inside_model_selection():
            warnings.warn(
                "scikit-learn's model selection fits this estimator once per candidate and fold, "
                "and every fit spends epsilon on the same clients. To choose a decoder, fit once "
                "and call decode, which is free.",
                PrivacyWarning,
                stacklevel=2,
            )
        with one_thread() if self.n_jobs == 1 else nullcontext():
            aggregate = self.spec.run(
                X,
                sample_weight=sample_weight,
                dropouts=dropouts,
                ledger=self.ledger,
                random_state=self.random_state,
                simulation_seed=self.simulation_seed,
                diagnostics=self.diagnostics,
                previous=getattr(self, "aggregate_", None),
                n_jobs=self.n_jobs,
                progress=_tell if self.verbose else None,
            )
            with aggregate.timed("decode mean"):
                aggregate.solver  # noqa: B018 -- fitted here, kept by the aggregate
            self._keep(aggregate, aggregate.diagnose())
        return self

    def _keep(self, aggregate: Aggregate, diagnostics: Diagnostics | None) -> None:
        """Set the fitted attributes: all at once, so an interrupt leaves none behind."""
        result = aggregate.result
        fitted: dict[str, Any] = {
            "aggregate_": aggregate,
            "config_": aggregate.config,
            "result_": result,
            "operator_": aggregate.operator,
            "sketch_": aggregate.sketch,
            "solver_": aggregate.solver,
            "mean_": aggregate.solver.coef_,
            "noise_std_": aggregate.noise_std,
            "epsilon_": result.epsilon,
            "zcdp_epsilon_": result.zcdp_epsilon,
            "privacy_": aggregate.privacy,
            "rdp_": aggregate.privacy.rdp(DEFAULT_ORDERS),
            "clip_": aggregate.clip,
            "feedback_": aggregate.feedback,
            "n_survivors_": aggregate.n_survivors,
            "bits_per_client_": aggregate.bits_per_client,
            "bits_per_parameter_": aggregate.bits_per_parameter,
            "seed_": aggregate.config.encoder_seed,
            "not_private_": aggregate.not_private,
            "diagnostics_": diagnostics,
        }
        for name in ("clip_", "feedback_", "diagnostics_"):
            if fitted[name] is None:
                del fitted[name]
                self.__dict__.pop(name, None)  # an earlier fit's
        self.__dict__.update(fitted)

    # -- decoding: free of charge -------------------------------------------------------------

    def decode(self, decoder: Any = None, *, prior: Any = None, return_std: bool = False) -> Any:
        """Decode the round's sketch with any solver; costs no privacy and leaves ``mean_`` alone.

        Parameters
        ----------
        decoder : str or Solver, optional
            ``self.decoder`` by default.
        prior : object, optional
            What is known of the mean, for a decoder that takes a prior.
        return_std : bool, default=False
            Return the standard error of each entry as well; the decoder must then be unbiased,
            such as "linear" or one with ``debias=True``.

        Returns
        -------
        ndarray of shape (d,), or two of them
            The estimate, and with ``return_std`` its standard errors.
        """
        check_is_fitted(self)
        if decoder is None and self.decoder is not self.aggregate_.decoder:
            decoder = self.decoder  # changed since
        return self.aggregate_.decode(decoder, prior=prior, return_std=return_std)

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> NDArray[np.float64]:
        """Return an interval for each entry of the clipped clients' mean, of shape (d, 2).

        As :meth:`Aggregate.confidence_interval <sparse_secagg.round.aggregate.Aggregate>`: around
        the unbiased estimate of the decoder, not around ``mean_``.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval covers.
        simultaneous : bool, default=False
            Cover all entries together with this probability: for entries that are looked at
            because they came out large.
        """
        check_is_fitted(self)
        return np.asarray(self.aggregate_.confidence_interval(level, simultaneous=simultaneous))

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
        check_is_fitted(self)
        return np.asarray(self.aggregate_.discoveries(fdr, family_wise=family_wise))

    def score(self, X: Any, y: None = None) -> float:
        """Return ``1 − ‖mean_ − mean(X)‖²/‖mean(X)‖²``. Not private: for evaluation only."""
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        truth = np.asarray(X.mean(axis=0)).ravel()
        return float(1 - np.sum((self.mean_ - truth) ** 2) / np.sum(truth**2))

    @property
    def plan_(self) -> Plan:
        """What was fitted, as a plan: encoder, clip, noise, predicted error and lower bounds.

        Errors are those of ``decoder`` if ``sparsity`` is given or it is linear, and otherwise of
        the linear decoder, which ``plan_.decoder`` says.
        """
        check_is_fitted(self)
        config = self.config_
        return describe_round(
            self,
            encoder=parts_of(config).encoder,
            encoder_name=config.encoder["name"],
            decoder=decoder_name(self.decoder),
            calibrated=config.mechanism,
            clip_norm=config.clip_norm,
            privacy=self.privacy_,
            noise_std=self.noise_std_,
        )

    def _check_rows(self, X: Any, reset: bool = True) -> Any:
        held = hasattr(X, "__array__") and not is_dask_array(X)
        if held or sp.issparse(X) or not hasattr(X, "shape"):
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
            )
        self.n_features_in_ = X.shape[1]
        return X

    def __getattr__(self, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name == "diagnostics_":
            message += "; pass diagnostics=True and fit, which then compares with the clients' data"
        raise AttributeError(f"{message}.")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("diagnostics_", None)  # it depends on the clients' data
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags


def _tell(done: int, n: int) -> None:
    print(
        f"\r{done:,} of {n:,} clients", end="\n" if done == n else "", file=sys.stderr, flush=True
    )


def _inside_model_selection() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
