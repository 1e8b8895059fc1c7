"""LossTuner: TuneLoss between runs (ask for weights, train with them, tell the result)."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from tuneloss.checks import as_integer, reading
from tuneloss.core.box import Box, check_box
from tuneloss.core.cost import check_all_or_none, check_observations, check_squares, epsilon_value
from tuneloss.core.learn import LearnedLoss
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, JournalError, NotFinite, RunFailed
from tuneloss.tuning.extension import extend_journal
from tuneloss.tuning.journal import Journal, without_garbage_collection
from tuneloss.tuning.ledger import Ledger
from tuneloss.tuning.progress import progress_bar
from tuneloss.tuning.proposals import Choice, Fallback, Proposal, Proposer
from tuneloss.tuning.run import Header, Run, as_form, as_info, check_told
from tuneloss.tuning.sampling import same_point
from tuneloss.types import Array, Epsilon, Objective

Weights = Mapping[str, float] | ArrayLike
Train = Callable[[dict[str, float]], Observation | Sequence[Observation]]
STATE_VERSION = 1


class LossTuner:
    """Learns the weights of a loss from one training run to the next (algorithm TuneLoss).

    `ask` first proposes the points of `start`. Before the first observation it proposes the center of the box, then
    random points. After that, each proposal is what `learn_loss` returns for the observations so far, a step from the
    best run, or the point where a Gaussian process of the error expects the largest improvement.

    No point is proposed twice, except with ``fallback="repeat"``. After the first runs, the Gaussian process proposes
    another one instead. Before that, where there is no such process, and near points that failed, `fallback` does.

    Points that were asked for and not told yet count as tried. While there are such points, the next proposal is
    learned with random sample weights, one standard exponential number per observation (the Bayesian bootstrap). So
    `ask(n)` returns n different points, spread as far as the observations disagree.

    All random numbers depend only on `seed` and the numbers of points told and asked. So a resumed tuner continues as
    if it had never stopped. Threads may share one tuner.

    Parameters
    ----------
    box : Box
        The weights that are allowed.
    seed : int, default 0
        The seed of all random numbers.
    objective : {"auto", "calibrated", "paper"}, default "auto"
        "calibrated" and "paper" always propose what `learn_loss` returns in that form of the cost. With "auto", both
        forms take turns with steps from the best run: see the notes.
    epsilon : {"balanced", "paper"} or float, default "balanced"
        How much gradients count, as for `learn_loss`.
    start : mapping or sequence of weights, default ()
        The weights to try first: one point by name, or a list of points.
    fallback : {"nearby", "random", "repeat"}, default "nearby"
        "nearby" moves the point by about a tenth of each range. "random" draws from the whole box, log-uniformly where
        a range spans a decade. "repeat" proposes the point again.
    journal : path, optional
        A file that keeps everything that is told. An existing one is resumed.
    extend : bool, default False
        Whether an existing journal may be of another box. It then continues in this box, which must have the same names
        and contain all weights that were tried. Use it to raise a bound that the best weight has reached.

    Notes
    -----
    With ``objective="auto"``, the four runs after the first are learned; but while the error still falls in the
    direction of the last gain, a step by signs goes farther. From then on, four ways to propose take turns: a Gaussian
    process of the error, a step against the signs of the slopes of the error, LearnLoss from the best run alone, and
    LearnLoss from all runs in the paper's form. Slopes are estimated from the gradients in an observation. If the range
    of a weight spans more than four decades, a step by signs comes first, since a learned step is too short far from
    the optimum. A way whose last proposals were worse than the median run rests, and the Gaussian process has its
    turns. Start points and failed runs count as runs. Without gradients, the Gaussian process and LearnLoss take turns;
    if a range spans more than four decades, the center of the box comes first. On a simplex, and with more than ten
    free weights, there is no Gaussian process.

    Examples
    --------
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
        objective: Choice = "auto",
        epsilon: Epsilon = "balanced",
        start: Mapping[str, float] | Sequence[Weights] = (),
        fallback: Fallback = "nearby",
        journal: str | os.PathLike[str] | None = None,
        extend: bool = False,
    ) -> None:
        check_box(box)
        if extend and journal is None:
            raise InvalidInput('`extend=True` needs the journal to continue; found none. Give journal="runs.jsonl".')
        with reading("`start`"):
            points = [box.as_array(point) for point in ([start] if isinstance(start, Mapping) else start)]
        self.box, self.seed = box, as_integer(seed, "seed", 0)
        self._proposer = Proposer(
            box, seed=self.seed, objective=objective, epsilon=epsilon, start=points, fallback=fallback
        )
        self._lock = threading.RLock()
        self._ledger = Ledger(box)
        self._pending: list[Proposal] = []
        self._telling: tuple[Proposal | None, int] | None = None  # of a `tell` under way, and the number of runs before
        self._journal: Journal | None = None
        if journal is not None:
            with without_garbage_collection():
                self._journal = Journal(journal, Header(box).to_dict(), extend=extend)
                if extend:
                    extend_journal(self._journal, box)
                self._read_journal(self._journal)

    @property
    def learned(self) -> LearnedLoss | None:
        """The last answer of LearnLoss; None before the first."""
        return self._proposer.learned

    @property
    def history(self) -> list[Run]:
        """Everything that was told, in order."""
        with self._synchronized() as ledger:
            return list(ledger.runs)

    @property
    def best(self) -> Run | None:
        """The best run so far, by metric or error; None before the first run that did not fail."""
        with self._synchronized() as ledger:
            return ledger.best

    @property
    def n_runs(self) -> int:
        """The number of runs told, failed ones included."""
        with self._synchronized() as ledger:
            return ledger.n_runs

    @overload
    def ask(self) -> dict[str, float]: ...
    @overload
    def ask(self, n: int) -> list[dict[str, float]]: ...
    def ask(self, n: int | None = None) -> dict[str, float] | list[dict[str, float]]:
        """Return the weights to train with next.

        Parameters
        ----------
        n : int, optional
            The number of points to return, for n workers.

        Returns
        -------
        dict of str to float, or list of such dicts if `n` is given
            The weights by name. The n points are different.
        """
        if n is None:
            return self.box.as_dict(self.propose().point)
        with self._lock:
            return [self.box.as_dict(self.propose().point) for _ in range(as_integer(n, "n", 1))]

    def propose(self) -> Proposal:
        """Do what `ask` does, and also return how the weights were proposed, for `integrations`."""
        with self._synchronized() as ledger:
            proposal = self._proposer.propose(ledger, self._pending)
            self._pending.append(proposal)
            return proposal

    def reserve(self, weights: Weights) -> None:
        """Count weights as asked for, such as those that another process trains with.

        Parameters
        ----------
        weights : mapping or (k,) array
            The weights.
        """
        with self._lock:
            self._pending.append(Proposal(self.box.as_array(weights)))

    def release(self, weights: Weights) -> None:
        """Undo `reserve` or `ask`: the weights may be proposed again.

        Parameters
        ----------
        weights : mapping or (k,) array
            The weights.
        """
        with self._lock:
            self._drop_pending(self._find_pending(self.box.as_array(weights)))

    def tell(
        self,
        weights: Weights | None,
        observation: Observation | None = None,
        *,
        failed: str | None = None,
        info: Mapping[str, float] | None = None,
        form: Objective | None = None,
        way: str = "",
    ) -> None:
        """Record the result of training with these weights: an observation, or why the run failed.

        Several observations of one run, such as its checkpoints, are told one by one with the same weights.

        Parameters
        ----------
        weights : mapping or (k,) array, or None
            The weights as asked, or others of the box. None adds the observation to the initial set (Theta_0).
        observation : Observation, optional
            The trained model.
        failed : str, optional
            Why the run failed.
        info : mapping of str to float, optional
            Other numbers of the model, e.g. ``{"test error": 0.1}``. A report shows them; learning ignores them.
        form : {"calibrated", "paper"}, optional
            The form of the cost that proposed the weights, if this tuner did not propose them itself: see `propose`.
        way : str, optional
            The way in which they were proposed, likewise.
        """
        check_told(observation, failed)
        numbers, form = as_info(info), as_form(form)
        with self._synchronized() as ledger:
            if observation is not None:
                self._check([observation])
            if weights is None:
                self._record_initial(observation, numbers)
                return
            try:
                point = self.box.as_array(weights)
            except InvalidInput as reason:
                hint = "For a model that was trained with other weights, use `tell(None, observation)`."
                raise InvalidInput(f"{reason} {hint}") from None
            proposal = self._find_pending(point)
            earlier = ledger.run_with(point) if proposal is None else None  # this is another model of that run
            number = ledger.n_runs if earlier is None or earlier.run is None else earlier.run
            source = proposal or earlier
            if source is not None:
                form, way = form or source.form, way or source.way
            self._telling = (proposal, len(ledger.runs))
            self._record(Run(number, self.box.as_dict(point), observation, failed, numbers, form, way))
            self._end_telling()

    def run(self, train: Train, n_runs: int = 10, *, progress: bool = True) -> Run | None:
        """Ask, train and tell until there are `n_runs` runs in all.

        Parameters
        ----------
        train : callable
            Takes weights by name and returns an `Observation`, or a list of them (checkpoints, the final model last).
            If it raises `RunFailed`, or `NotFinite` as an `Observation` of NaN does, or if the squares of its numbers
            overflow, the run is recorded as failed and the next one begins. Any other exception ends the loop; call
            `run` again to continue. `train` may keep its last model for a warm start.
        n_runs : int, default 10
            The number of runs in all, those told before included.
        progress : bool, default True
            Whether to show a progress bar.

        Returns
        -------
        Run or None
            The best run; None if all failed.
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
                observation = best.observation if best else None
                note = f"best error {observation.error:.4g}" if observation else "no run yet that did not fail"
                advance(self.n_runs, note)
        return self.best

    def _train_once(self, train: Train, weights: dict[str, float]) -> None:
        try:
            result = train(dict(weights))
        except (RunFailed, NotFinite) as reason:
            self.tell(weights, failed=str(reason) or type(reason).__name__)
            return
        models = [result] if isinstance(result, Observation) else result
        if not isinstance(models, Sequence) or not models or not all(isinstance(o, Observation) for o in models):
            raise InvalidInput(
                f"`train` must return an Observation, or a list of them; found {type(result).__name__}. To say that a "
                "run failed, raise tuneloss.errors.RunFailed."
            )
        check_observations(models, self.box)
        try:
            check_squares(models)
        except InvalidInput as reason:  # its numbers are finite, but far too large
            self.tell(weights, failed=f"training diverged: {reason}")
            return
        with self._lock:
            self._check(models)  # all of them, before the first is told
            for observation in models:
                self.tell(weights, observation)

    def state_dict(self) -> dict[str, Any]:
        """Return the tuner as JSON types, without its journal."""
        with self._synchronized() as ledger:
            strategy = self._proposer
            return {
                "version": STATE_VERSION,
                "box": self.box.state_dict(),
                "seed": self.seed,
                "objective": strategy.objective,
                "epsilon": "inf" if strategy.epsilon == math.inf else strategy.epsilon,
                "fallback": strategy.fallback,
                "start": [point.tolist() for point in strategy.start],
                "history": [run.to_dict() for run in ledger.runs],
                "pending": [proposal.point.tolist() for proposal in self._pending],
                "pending_forms": [proposal.form for proposal in self._pending],
                "pending_ways": [proposal.way for proposal in self._pending],
            }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> LossTuner:
        """Build a tuner from the output of `state_dict`.

        Parameters
        ----------
        state : mapping
            The state.
        """
        with reading("A tuner's state"):
            if state["version"] != STATE_VERSION:
                raise InvalidInput(f"A tuner's state must have version {STATE_VERSION}; found {state['version']!r}.")
            tuner = cls(
                Box.from_state_dict(state["box"]),
                seed=state["seed"],
                objective="auto" if state["objective"] == "both" else state["objective"],  # "both" was its name before
                epsilon=math.inf if state["epsilon"] == "inf" else state["epsilon"],
                start=state["start"],
                fallback=state["fallback"],
            )
            tuner._ledger.extend(Run.from_dicts(state["history"]))
            forms = state.get("pending_forms") or [None] * len(state["pending"])
            ways = state.get("pending_ways") or [""] * len(state["pending"])  # earlier versions did not keep them
            for point, form, way in zip(state["pending"], forms, ways, strict=True):
                tuner._pending.append(Proposal(tuner.box.as_array(point), as_form(form), str(way)))
        return tuner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @contextmanager
    def _synchronized(self) -> Iterator[Ledger]:
        """Hold the lock and yield the ledger, after finishing what an interrupt may have cut short."""
        with self._lock:
            if self._journal is not None and len(self._journal.records) != len(self._ledger.runs):
                self._read_journal(self._journal)
            self._ledger.catch_up()
            self._end_telling()
            yield self._ledger

    def _read_journal(self, journal: Journal) -> None:
        """Add the journal's records that the ledger does not have yet."""
        try:
            runs = Run.from_dicts(journal.records[len(self._ledger.runs) :])
            self._check([run.observation for run in runs if run.observation is not None])
            self._ledger.extend(runs)
        except InvalidInput as reason:
            raise JournalError(f"The records of the journal {journal.path} must be of its box: {reason}") from None

    def _check(self, observations: Sequence[Observation]) -> None:
        """Raise unless the next `ask` can learn from these observations and those told before."""
        if not observations:
            return
        earlier = self._ledger.observations[:1]
        check_observations([*earlier, *observations], self.box)
        check_all_or_none([*earlier, *observations], "gram")
        epsilon_value(self._proposer.epsilon, observations, np.ones(len(observations)))
        check_squares(observations)

    def _record_initial(self, observation: Observation | None, info: dict[str, float]) -> None:
        """Record a model of the initial set."""
        if observation is None:
            raise InvalidInput("A failed run needs its weights; found None. Tell it as tell(weights, failed=...).")
        self._record(Run(None, None, observation, info=info))

    def _record(self, run: Run) -> None:
        if self._journal is not None:
            self._journal.append(run.to_dict())
        self._ledger.extend([run])

    def _end_telling(self) -> None:
        """Drop the pending proposal of the last `tell` if its run was recorded, also after an interrupt."""
        if self._telling is None:
            return
        proposal, n_before = self._telling
        if len(self._ledger.runs) > n_before:
            self._drop_pending(proposal)
        self._telling = None

    def _find_pending(self, point: Array) -> Proposal | None:
        return next((proposal for proposal in self._pending if same_point(point, proposal.point)), None)

    def _drop_pending(self, proposal: Proposal | None) -> None:
        self._pending = [other for other in self._pending if other is not proposal]
