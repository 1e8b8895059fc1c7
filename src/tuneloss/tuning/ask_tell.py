"""TuneLoss between runs: ask for weights, train with them, tell what came out."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.core.box import Box, check_box
from tuneloss.core.checks import as_integer, reading
from tuneloss.core.cost import check_epsilon, check_squares, epsilon_value
from tuneloss.core.learn import LearnedLoss, Learner, check_all_or_none, check_objective, check_observations
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, JournalError, NotFinite, RunFailed, SolverError
from tuneloss.tuning.journal import Journal, without_garbage_collection
from tuneloss.tuning.ledger import Told
from tuneloss.tuning.progress import progress_bar
from tuneloss.tuning.run import Header, Run, as_info, check_told
from tuneloss.tuning.sampling import center, distance, nearby, same_point, sample_box
from tuneloss.tuning.turns import next_form
from tuneloss.types import Array, Epsilon, Objective

Weights = Mapping[str, float] | ArrayLike
Fallback = Literal["nearby", "random", "repeat"]
FAILED_RADIUS = 0.05  # of a range: proposals this near to a failed run are avoided
TRIES = 100


class LossTuner:
    """Learns the weights of a loss from one training run to the next (algorithm TuneLoss).

    `ask` proposes, in this order: the points of `start`; while nothing is known, the centre of the box and then random
    points; else what `learn_loss` says to all observations so far. Where that repeats a point that was tried, or comes
    near one that failed, `fallback` takes over: "nearby" moves it by about a tenth of each range, "random" draws from
    the whole box (log-uniform where a range spans a decade), "repeat" lets it be. Points that were asked for and not
    told yet count as tried, and the next proposal is learned with random sample weights, one standard exponential
    number an observation (the Bayesian bootstrap): so `ask(n)` gives n different points, spread as far as the
    observations disagree. (With "repeat" they may be equal.)

    All random numbers come from `seed` and the number of points told and asked, so a resumed tuner goes on as it
    would have. One tuner may be shared by threads.

    objective: of `learn_loss`; "both" takes the form that led to the best run so far, and the other every third time.
    start: weights to try first: one point by name, or a list of points.
    journal: a file that keeps all that is told; an existing one is resumed.

    >>> tuner = LossTuner(Box.from_dict({"l2": (0.1, 10.0), "logloss": 1.0}))
    >>> weights = tuner.ask()
    >>> weights
    {'l2': 1.0, 'logloss': 1.0}
    >>> model = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])
    >>> tuner.tell(weights, model)
    >>> round(tuner.ask()["l2"], 6)
    2.0
    """

    def __init__(
        self,
        box: Box,
        *,
        seed: int = 0,
        objective: Objective | Literal["both"] = "both",
        epsilon: Epsilon = "balanced",
        start: Mapping[str, float] | Sequence[Weights] = (),
        fallback: Fallback = "nearby",
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        check_box(box)
        if fallback not in ("nearby", "random", "repeat"):
            raise InvalidInput(f'`fallback` must be "nearby", "random" or "repeat"; found {fallback!r}.')
        check_objective(objective, ("calibrated", "paper", "both"))
        check_epsilon(epsilon)
        self.box, self.objective, self.epsilon, self.fallback = box, objective, epsilon, fallback
        self.seed = as_integer(seed, "seed", 0)
        with reading("`start`"):
            self._start = [box.as_array(p) for p in ([start] if isinstance(start, Mapping) else start)]
        self._lock = threading.RLock()
        self._told = Told(box)
        self._pending: list[Array] = []
        self._learner = Learner(box)
        self._leaders: dict[int, Objective] = {}  # of `leading_form`
        self.learned: LearnedLoss | None = None
        self._journal: Journal | None = None
        if journal is not None:
            with without_garbage_collection():
                self._journal = Journal(journal, Header(box).to_dict())
                self._take_in_journal(self._journal)

    @property
    def history(self) -> list[Run]:
        """All that was told, in order."""
        with self._synchronized() as told:
            return list(told.runs)

    @property
    def best(self) -> Run | None:
        """The best run told so far, by metric or error; None before the first that did not fail."""
        with self._synchronized() as told:
            return told.best

    @property
    def n_runs(self) -> int:
        """How many runs were told, failed ones included."""
        with self._synchronized() as told:
            return told.n_runs

    @overload
    def ask(self) -> dict[str, float]: ...
    @overload
    def ask(self, n: int) -> list[dict[str, float]]: ...
    def ask(self, n: int | None = None) -> dict[str, float] | list[dict[str, float]]:
        """The weights to train with next; `ask(n)` gives n different ones, for n workers."""
        with self._synchronized() as told:
            if n is not None:
                return [self.ask() for _ in range(as_integer(n, "n", 1))]
            point = self._propose(told)
            self._pending.append(point)
            return self.box.as_dict(point)

    def reserve(self, weights: Weights) -> None:
        """Count weights as asked for and not told yet, such as those that another process trains with."""
        with self._lock:
            self._pending.append(self.box.as_array(weights))

    def release(self, weights: Weights) -> None:
        """The inverse of `reserve`: nobody trains with these weights any more, and they may be proposed again."""
        with self._lock:
            self._pending = _without(self._pending, self.box.as_array(weights))

    def tell(
        self,
        weights: Weights | None,
        observation: Observation | None = None,
        *,
        failed: str | None = None,
        info: Mapping[str, float] | None = None,
    ) -> None:
        """Record what came of training with these weights: an observation, or why the run failed.

        weights: as asked, or others of the box. None adds the observation to the initial set (Theta_0).
        Several observations of one run, such as its checkpoints, are told one by one with the same weights.
        info: other numbers of the model, by name (e.g. {"test error": 0.1}), that a report shows.
        """
        check_told(observation, failed)
        noted = as_info(info)
        with self._synchronized() as told:
            if observation is not None:
                self._check([observation])
            if weights is None:
                if observation is None:
                    raise InvalidInput(
                        "A failed run needs its weights; found None. Tell it as tell(weights, failed=...)."
                    )
                self._record(Run(None, None, observation, info=noted))
                return
            try:
                point = self.box.as_array(weights)
            except InvalidInput as reason:
                hint = "For a model that was trained with other weights, use `tell(None, observation)`."
                raise InvalidInput(f"{reason} {hint}") from None
            asked = any(same_point(point, other) for other in self._pending)
            number = None if asked else told.number_of(point)  # of weights told before: another model of that run
            number = told.n_runs if number is None else number
            self._record(Run(number, self.box.as_dict(point), observation, failed, noted))
            self._pending = _without(self._pending, point)

    def run(
        self,
        train: Callable[[dict[str, float]], Observation | Sequence[Observation]],
        n_runs: int = 10,
        *,
        progress: bool = True,
    ) -> Run | None:
        """Ask, train and tell until there are `n_runs` runs in all; returns the best.

        train: weights -> Observation, or a list of them (checkpoints, the final model last). If it raises `RunFailed`,
            or `NotFinite` as an `Observation` of NaN does, the run is recorded as failed and the next one begins. Any
            other exception ends the loop; calling `run` again goes on. It may keep its last model for a warm start.
        """
        n_runs = as_integer(n_runs, "n_runs", 1)
        with progress_bar("tuning", n_runs, enabled=progress) as advance:
            advance(self.n_runs, "")
            while self.n_runs < n_runs:
                weights = self.ask()
                try:
                    self._train_once(train, weights)
                finally:  # an interrupted run was not told: it will be proposed again
                    self.release(weights)
                best = self.best
                seen = best.observation if best else None
                advance(self.n_runs, f"best error {seen.error:.4g}" if seen else "no run yet that did not fail")
        return self.best

    def _train_once(
        self,
        train: Callable[[dict[str, float]], Observation | Sequence[Observation]],
        weights: dict[str, float],
    ) -> None:
        try:
            result = train(dict(weights))
        except (RunFailed, NotFinite) as reason:
            self.tell(weights, failed=str(reason) or type(reason).__name__)
            return
        found = [result] if isinstance(result, Observation) else result
        if not isinstance(found, Sequence) or not found or not all(isinstance(o, Observation) for o in found):
            raise InvalidInput(
                f"`train` must return an Observation, or a list of them; found {type(result).__name__}. To say that a "
                "run failed, raise tuneloss.errors.RunFailed."
            )
        with self._lock:
            self._check(found)  # all of them, before the first is told
            for observation in found:
                self.tell(weights, observation)

    def state_dict(self) -> dict[str, Any]:
        """The tuner as JSON, except for its journal."""
        with self._synchronized() as told:
            return {
                "version": 1,
                "box": self.box.state_dict(),
                "seed": self.seed,
                "objective": self.objective,
                "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
                "fallback": self.fallback,
                "start": [point.tolist() for point in self._start],
                "history": [run.to_dict() for run in told.runs],
                "pending": [point.tolist() for point in self._pending],
            }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> LossTuner:
        """The inverse of `state_dict`."""
        with reading("A tuner's state"):
            if state["version"] != 1:
                raise InvalidInput(f"A tuner's state must have version 1; found {state['version']!r}.")
            tuner = cls(
                Box.from_state_dict(state["box"]),
                seed=state["seed"],
                objective=state["objective"],
                epsilon=math.inf if state["epsilon"] == "inf" else state["epsilon"],
                start=state["start"],
                fallback=state["fallback"],
            )
            tuner._told.extend(Run.from_dicts(state["history"]))
            tuner._pending = [tuner.box.as_array(point) for point in state["pending"]]
        return tuner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @contextmanager
    def _synchronized(self) -> Iterator[Told]:
        """Alone with all that was told, after what an interrupt may have cut short was finished."""
        with self._lock:
            if self._journal is not None and len(self._journal.records) != len(self._told.runs):
                self._take_in_journal(self._journal)
            self._told.catch_up()
            yield self._told

    def _take_in_journal(self, journal: Journal) -> None:
        """Take in the journal's records that are not yet."""
        try:
            runs = Run.from_dicts(journal.records[len(self._told.runs) :])
            self._check([run.observation for run in runs if run.observation is not None])
            self._told.extend(runs)
        except InvalidInput as reason:
            raise JournalError(f"The records of the journal {journal.path} must be of its box: {reason}") from None

    def _check(self, observations: Sequence[Observation]) -> None:
        """Raise unless the next `ask` can learn from these observations beside those told before."""
        if not observations:
            return
        known = self._told.observations[:1]
        check_observations([*known, *observations], self.box)
        check_all_or_none([*known, *observations], "gram")
        epsilon_value(self.epsilon, observations, np.ones(len(observations)))
        check_squares(observations)

    def _record(self, run: Run) -> None:
        if self._journal is not None:
            self._journal.append(run.to_dict())
        self._told.extend([run])

    def _propose(self, told: Told) -> Array:
        tried = np.vstack([told.tried, *self._pending])
        for point in self._start:
            if not same_point(tried, point):
                return point
        rng = np.random.default_rng([self.seed, len(told.runs), len(self._pending)])
        if not told.observations:
            point, fallback = center(self.box), "random"
        else:
            point, fallback = self._learn(told, rng), self.fallback
        return point if fallback == "repeat" else self._new(point, tried, told.failed, fallback, rng)

    def _learn(self, told: Told, rng: np.random.Generator) -> Array:
        spread = rng.standard_exponential(len(told.observations)) if self._pending else None
        objective = self.objective
        if objective == "both":
            asked = told.n_runs + len(self._pending)
            objective = next_form(told.runs, asked, self.box, self.epsilon, self._leaders)
        try:
            self.learned = self._learner.learn(
                told.observations, objective=objective, epsilon=self.epsilon, sample_weight=spread
            )
        except SolverError as reason:
            warnings.warn(f"The next weights are near the best so far, since {reason}", RuntimeWarning, stacklevel=4)
            best = told.best
            return center(self.box) if best is None or best.weights is None else self.box.as_array(best.weights)
        return self.learned.weights

    def _new(self, point: Array, tried: Array, failed: Array, fallback: str, rng: np.random.Generator) -> Array:
        """The point, or by the fallback one that was not tried and is not near a failed one."""
        candidate = point
        for _ in range(TRIES):
            if not same_point(tried, candidate) and distance(self.box, candidate, failed) > FAILED_RADIUS:
                return candidate
            candidate = nearby(self.box, point, rng) if fallback == "nearby" else sample_box(self.box, rng)
        return candidate  # the box is a point, or full of failures


def _without(points: list[Array], point: Array) -> list[Array]:
    """The points but for the first that is the same as this one."""
    for i, other in enumerate(points):
        if same_point(point, other):
            return points[:i] + points[i + 1 :]
    return points
