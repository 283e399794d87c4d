"""What a round leaves: the noisy mean sketch ŷ ≈ Sμ + noise, decoded as often as one likes.

Whatever is computed from the released sketch is post-processing: it costs no privacy.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import solvers
from solvers.operators import Operator
from sparse_secagg.exceptions import AggregateFileError
from sparse_secagg.parameters import default
from sparse_secagg.privacy.conversion import stated
from sparse_secagg.privacy.observers import Costed, RoundPrivacy
from sparse_secagg.privacy.sampling import Sampling
from sparse_secagg.private_files import open_private
from sparse_secagg.round.clipping import AdaptiveClip
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.round.decoders import make_decoder
from sparse_secagg.round.diagnostics import Diagnostics, Witness
from sparse_secagg.round.feedback import ThresholdFeedback
from sparse_secagg.round.parts import parts_of

__all__ = ["Aggregate", "RoundResult", "privacy_of_round"]

FORMAT_VERSION = 1


@dataclass(frozen=True)
class RoundResult(Costed):
    """What a round gave and cost; prints as a table.

    Parameters
    ----------
    privacy : RoundPrivacy
        What the round revealed to whom, with the noise that survived.
    noise_std : float
        Standard deviation of the noise in each coordinate of the mean sketch.
    n_clients, n_survivors : int
        Clients asked, and clients whose messages are in the sum.
    dim, n_components : int
        Lengths d of a vector and m of a sketch.
    bits_per_client : int
        Payload of one message.
    bits_per_parameter : float
        The same, divided by d.
    seconds : dict
        Time of each stage.
    not_private : bool
        True for simulations and for rounds without noise.

    See Also
    --------
    sparse_secagg.Aggregate : Has it as ``result``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import RoundSpec
    >>> X = np.random.default_rng(0).normal(0.0, 0.01, (200, 100))
    >>> result = RoundSpec(epsilon=1.0, compression=5).run(X).result
    >>> result.n_components, result.n_survivors
    (20, 200)
    """

    privacy: RoundPrivacy
    noise_std: float
    n_clients: int
    n_survivors: int
    dim: int
    n_components: int
    bits_per_client: int
    bits_per_parameter: float
    seconds: dict[str, float]
    not_private: bool

    def __str__(self) -> str:
        rows = {
            "privacy": f"({stated(self.epsilon)}, {stated(self.delta, 3)})-DP against "
            f"{self.observer} ({self.privacy.adjacency})"
            + (", NOT PRIVATE: simulated or without noise" if self.not_private else ""),
            "zcdp_epsilon": stated(self.zcdp_epsilon),
            "clients": f"{self.n_survivors:,} of {self.n_clients:,}",
            "sketch": f"{self.dim:,} -> {self.n_components:,}",
            "noise_std": f"{self.noise_std:.4g}",
            "message": f"{self.bits_per_client:,} bits, "
            f"{self.bits_per_parameter:.4g} per parameter",
            "seconds": ", ".join(f"{stage} {t:.3g}" for stage, t in self.seconds.items()),
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows.items())


@dataclass(frozen=True, eq=False)
class Aggregate(Costed):
    """The result of one private round, before and after any decoding.

    Parameters
    ----------
    config : RoundConfig
        The round, as a server would broadcast it.
    sketch : ndarray of shape (m,)
        ŷ, the noisy mean sketch: all that was learnt from the clients.
    operator : Operator of shape (m, d)
        The public map S.
    noise_std : float
        Standard deviation of the noise in each coordinate of ``sketch``.
    privacy : RoundPrivacy
        What the round revealed, to every observer.
    survivors : ndarray of int
        Clients (rows) in the sum.
    bytes_per_client : int
        The most that a client sent: payload and protocol of secure aggregation.
    seconds : dict
        Time of each stage.
    not_private : bool
        True for simulations and for rounds without noise.
    decoder : str or Solver
        What :meth:`decode` uses by default.
    prior : object, optional
        What is known of the mean, for decoders that take a prior.
    clip : AdaptiveClip, optional
        With adaptive clipping: its state, and the clip of the next round.
    feedback : ThresholdFeedback, optional
        With error feedback: what the next round adds back.
    witness : Witness, optional
        With diagnostics: what is known of the clients' data. Not private, not saved.

    See Also
    --------
    RoundSpec.run : Makes one.
    SparseSecAgg : Keeps it as ``aggregate_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import RoundSpec
    >>> X = np.zeros((500, 2000))
    >>> X[:, :5] = 0.4
    >>> aggregate = RoundSpec(epsilon=4.0).run(X)
    >>> aggregate.discoveries(family_wise=1e-6).shape
    (5,)
    >>> aggregate.decode("working_set").shape
    (2000,)
    """

    config: RoundConfig
    sketch: NDArray[np.float64] = field(repr=False)
    operator: Operator = field(repr=False)
    noise_std: float
    privacy: RoundPrivacy = field(repr=False)
    survivors: NDArray[np.int64] = field(repr=False)
    bytes_per_client: int
    seconds: dict[str, float] = field(default_factory=dict, repr=False)
    not_private: bool = False
    decoder: Any = field(default_factory=lambda: default("decoder"))
    prior: Any = None
    clip: AdaptiveClip | None = None
    feedback: ThresholdFeedback | None = field(default=None, repr=False)
    witness: Witness | None = field(default=None, repr=False)

    # -- what was measured --------------------------------------------------------------------

    @property
    def n_survivors(self) -> int:
        """Clients in the sum."""
        return len(self.survivors)

    @property
    def bits_per_client(self) -> int:
        """Payload of a message."""
        return self.config.mechanism.bits_per_client

    @property
    def bits_per_parameter(self) -> float:
        """Payload of a message, divided by d."""
        return self.bits_per_client / self.config.dim

    @property
    def result(self) -> RoundResult:
        """Gain and cost as one record that prints as a table."""
        p = self.config.mechanism
        return RoundResult(
            privacy=self.privacy,
            noise_std=self.noise_std,
            n_clients=p.n_clients,
            n_survivors=self.n_survivors,
            dim=self.config.dim,
            n_components=p.dim,
            bits_per_client=self.bits_per_client,
            bits_per_parameter=self.bits_per_parameter,
            seconds=self.seconds,
            not_private=self.not_private,
        )

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of what is done inside to ``seconds``."""
        start = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start

    # -- decoding -----------------------------------------------------------------------------

    @cached_property
    def solver(self) -> Any:
        """The fitted solver of ``decoder``."""
        return self.fitted()

    def fitted(self, decoder: Any = None, *, prior: Any = None) -> Any:
        """Return a solver fitted to the sketch; ``decoder`` and ``prior`` default to the round's.

        The round's prior goes with the round's decoder; another decoder gets the one given here.
        """
        if decoder is None:
            decoder, prior = self.decoder, self.prior if prior is None else prior
        solver = make_decoder(decoder, prior)
        return solver.fit(self.operator, self.sketch, noise_std=self.noise_std)

    def decode(self, decoder: Any = None, *, prior: Any = None, return_std: bool = False) -> Any:
        """Decode the sketch with any solver.

        Parameters
        ----------
        decoder : str or Solver, optional
            The round's by default.
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
        own = decoder is None and prior is None
        solver = self.solver if own else self.fitted(decoder, prior=prior)
        if not return_std:
            return solver.coef_.copy() if own else solver.coef_
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

        The intervals stand around the unbiased estimate of the round's decoder (of the linear one,
        if it has none). They cover over draws of sketch and noise, each entry with probability
        ``level``; entries that are looked at because they came out large are covered less often,
        unless all are covered at once.

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
        solver = self.unbiased
        m = self.operator.shape[0] if simultaneous else None
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
        solver = self.unbiased
        m = self.operator.shape[0]
        return solvers.discoveries(
            solver.coef_, solver.std_err_, fdr, family_wise, n_measurements=m
        )

    @cached_property
    def unbiased(self) -> Any:
        """The decoder's unbiased form, fitted; the linear decoder where it has none."""
        if self.solver.std_err_ is not None:
            return self.solver
        if "debias" in self.solver.get_params(deep=False):
            unbiased = self.fitted(make_decoder(self.solver).set_params(debias=True))
            if unbiased.std_err_ is not None:
                return unbiased
        return self.fitted("linear")

    def diagnose(self, mean: NDArray[np.float64] | None = None) -> Diagnostics | None:
        """Compare a decoded mean, by default the round's own, with the clients' data. Not private.

        None unless the round was run with ``diagnostics=True``, and in another process.
        """
        if self.witness is None:
            return None
        return self.witness.diagnose(self.sketch, self.solver.coef_ if mean is None else mean)

    # -- files --------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "witness": None}  # it depends on the clients' data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the aggregate to an ``.npz`` file: JSON and arrays, readable by its owner only.

        Everything that a server has learnt is written. A decoder given as an instance and a prior
        are not: :meth:`load` takes them as arguments.
        """
        document = {
            "format": "sparse_secagg aggregate",
            "version": FORMAT_VERSION,
            "config": self.config.to_json(),
            "noise_std": self.noise_std,
            "bytes_per_client": self.bytes_per_client,
            "seconds": self.seconds,
            "not_private": self.not_private,
            "decoder": self.decoder if isinstance(self.decoder, str) else None,
            "sampling": _sampling_to_dict(self.privacy.sampling),
            "clip": None if self.clip is None else {**self.clip.get_params(), **_state(self.clip)},
            "feedback": None if self.feedback is None else self.feedback.get_params(),
        }
        arrays: dict[str, Any] = {"sketch": self.sketch, "survivors": self.survivors}
        if self.feedback is not None:
            arrays["feedback_error"] = self.feedback.error_
        text = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
        with open_private(Path(path)) as file:
            np.savez(file, document=text, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, decoder: Any = None, prior: Any = None) -> Self:
        """Read an aggregate that :meth:`save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : path
            The file.
        decoder, prior : optional
            What to decode with; by default the decoder's name in the file, and no prior.

        Raises
        ------
        AggregateFileError
            The file is not an aggregate, is damaged, or has a version that is not known here.
        """
        try:
            with np.load(Path(path), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            document = json.loads(arrays.pop("document").tobytes())
            known = document["format"] == "sparse_secagg aggregate"
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise AggregateFileError(f"{path} is not a saved aggregate: {error}.") from None
        if not known or document.get("version") != FORMAT_VERSION:
            raise AggregateFileError(
                f"{path} has version {document.get('version')}, this software reads "
                f"{FORMAT_VERSION}; update the older of the two."
            )
        if decoder is not None:
            document["decoder"] = decoder
        try:
            return replace(cls._of_document(document, arrays), prior=prior)
        except (ValueError, KeyError, TypeError) as error:
            raise AggregateFileError(f"{path} is damaged: {error}") from None

    @classmethod
    def _of_document(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        config = RoundConfig.from_json(document["config"])
        survivors = arrays["survivors"].astype(np.int64)
        clip, feedback = None, None
        if document["clip"] is not None:
            current = document["clip"].pop("clip_norm_")
            clip = AdaptiveClip(**document["clip"])
            clip.clip_norm_ = float(current)
        if document["feedback"] is not None:
            feedback = ThresholdFeedback(**document["feedback"])
            feedback.error_ = arrays["feedback_error"]
        sampling = None if document["sampling"] is None else Sampling(**document["sampling"])
        return cls(
            config=config,
            sketch=arrays["sketch"],
            operator=parts_of(config).encoder.operator_,
            noise_std=float(document["noise_std"]),
            privacy=privacy_of_round(
                parts_of(config).mechanism.privacy(len(survivors)), clip
            ).sampled(sampling),
            survivors=survivors,
            bytes_per_client=int(document["bytes_per_client"]),
            seconds=document["seconds"],
            not_private=bool(document["not_private"]),
            decoder=document["decoder"] or default("decoder"),
            clip=clip,
            feedback=feedback,
        )


def privacy_of_round(sketch: RoundPrivacy, clip: AdaptiveClip | None) -> RoundPrivacy:
    """Return the privacy of a round: that of its sketch, and of adaptive clipping beside it."""
    if clip is None:
        return sketch
    k = sketch.n_survivors
    colluders = min(sketch.colluders, k - 1)
    count = clip.mechanism(k, adjacency=sketch.adjacency, colluders=colluders)
    return sketch.plus(count.noisy_sum())


def _sampling_to_dict(sampling: Sampling | None) -> dict[str, Any] | None:
    return None if sampling is None else dict(vars(sampling))


def _state(clip: AdaptiveClip) -> dict[str, float]:
    return {"clip_norm_": clip.current}
