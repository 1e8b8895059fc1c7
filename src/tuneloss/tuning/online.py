"""TuneLoss inside one run: from the observations of checkpoints to the next weights.

The policy says how to learn from checkpoints. The learner keeps the observations that still matter. Neither knows which
framework trains the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from tuneloss.checks import as_integer, as_number
from tuneloss.core.box import Box
from tuneloss.core.cost import check_epsilon
from tuneloss.core.learn import LearnedLoss, Learner, check_objective
from tuneloss.core.observation import Observation
from tuneloss.errors import InvalidInput, SolverError
from tuneloss.tuning.slopes import gradient_cosine
from tuneloss.types import Array, Epsilon, Objective

LARGEST_RISE = 2.0  # of the scale that is held, per step, as a factor
NEGLIGIBLE = 1e-3  # sample weight: `decay` drops an observation that would count less than this


@dataclass(frozen=True)
class OnlinePolicy:
    """How an online run learns from its checkpoints.

    By default, only the gradients at the last 3 checkpoints count, and each step keeps half of the old loss.

    Parameters
    ----------
    start : {"now", "rise"}, default "now"
        When learning begins: at the first step ("now"), or once the error has risen for the first time ("rise", as in
        appendix B of the paper). Until then the weights stay as they are.
    objective : {"calibrated", "paper"}, default "calibrated"
        The form of the cost, as for `learn_loss`.
    epsilon : {"balanced", "paper"} or float, default infinity
        How much gradients count, as for `learn_loss`. Infinity ignores the values of terms and error.
    offset : bool, default True
        Whether loss and error may differ by a constant, as for `learn_loss`.
    window : int or None, default 3
        How many of the last checkpoints count in the cost; None for all of them.
    decay : float or None, default None
        The sample weight of a checkpoint relative to the one after it, e.g. 0.9. With None, all count equally.
    constraints : {"none", "window", "all"}, default "none"
        The checkpoints to which the argmin constraints of LearnLoss apply.
    damping : float, default 0.5
        The fraction of the old loss that each step keeps. Losses are averaged as ``weights / scale``, in units of
        error. So a step with a large scale, where no weights explain the error, changes little. With 0, the learned
        weights are used as they are.
    hold_scale : float, default 0.9
        How far the scale may fall in one step: 0.9 keeps at least 90% of the last scale, 0 lets it fall freely. As
        training converges, the gradients of the loss vanish, but those of the error do not. A free scale follows them
        down, and the weights of all terms but the pinned one with it. A scale that jumps up counts as at most twice the
        one before, so that one odd checkpoint is soon forgotten. Only the calibrated form holds its scale.
    patience : int, default 10
        Warn that tuning may hurt after this many steps in a row with an error more than 5% above the best.

    Examples
    --------
    >>> OnlinePolicy(window=3).sample_weight(5)
    array([0., 0., 1., 1., 1.])
    """

    start: Literal["now", "rise"] = "now"
    objective: Objective = "calibrated"
    epsilon: Epsilon = math.inf
    offset: bool = True
    window: int | None = 3
    decay: float | None = None
    constraints: Literal["none", "window", "all"] = "none"
    damping: float = 0.5
    hold_scale: float = 0.9
    patience: int = 10

    @classmethod
    def paper(cls) -> OnlinePolicy:
        """Return the policy of the paper (section 3.1 and appendix B)."""
        return cls(
            start="rise",
            objective="paper",
            epsilon="paper",
            offset=False,
            window=None,
            constraints="all",
            damping=0.0,
            hold_scale=0.0,
        )

    @classmethod
    def long_run(cls) -> OnlinePolicy:
        """Return a policy for hundreds of epochs.

        Gradients alone show what is best for the next steps. Over 1000 epochs, a regularizer learned from them is too
        weak. With this policy, values count more than gradients: epsilon is a ten-thousandth of the number that
        balances the two. The window is 100 checkpoints. This was the best of eight pairs of epsilon and window on one
        data set.
        """
        return cls(start="rise", epsilon=2e-4, window=100, damping=0.7, hold_scale=0.0)

    def __post_init__(self) -> None:
        check_objective(self.objective)
        check_epsilon(self.epsilon)
        if self.start not in ("now", "rise"):
            raise InvalidInput(f'`start` must be "now" or "rise"; found {self.start!r}.')
        if self.window is not None:
            as_integer(self.window, "window", 1)
        if self.decay is not None and not 0 < as_number(self.decay, "decay") <= 1:
            raise InvalidInput(f"`decay` must be above 0 and at most 1; found {self.decay}. Give e.g. 0.9.")
        if self.constraints not in ("all", "window", "none"):
            raise InvalidInput(f'`constraints` must be "all", "window" or "none"; found {self.constraints!r}.')
        if not 0 <= as_number(self.damping, "damping") < 1:
            raise InvalidInput(f"`damping` must be at least 0 and below 1; found {self.damping}. Give e.g. 0.5.")
        if not 0 <= as_number(self.hold_scale, "hold_scale") <= 1:
            raise InvalidInput(f"`hold_scale` must be between 0 and 1; found {self.hold_scale}. Give e.g. 0.9.")
        as_integer(self.patience, "patience", 1)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types; an infinite epsilon is "inf"."""
        return asdict(self) | {"epsilon": "inf" if self.epsilon == math.inf else self.epsilon}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> OnlinePolicy:
        """Read the output of `to_dict`."""
        return cls(**{**record, "epsilon": math.inf if record["epsilon"] == "inf" else record["epsilon"]})

    @property
    def span(self) -> int | None:
        """The number of last checkpoints that count in the cost, by `window` and `decay`; None for all of them.

        >>> OnlinePolicy(window=None, decay=0.5).span
        10
        """
        spans = [] if self.window is None else [self.window]
        if self.decay is not None and self.decay < 1:
            spans.append(1 + int(math.log(NEGLIGIBLE) / math.log(self.decay) + 1e-9))
        return min(spans, default=None)

    def sample_weight(self, m: int) -> Array:
        """Return how much each of m checkpoints counts in the cost.

        Parameters
        ----------
        m : int
            The number of checkpoints.

        Returns
        -------
        (m,) array
            The newest checkpoint is the last.

        Examples
        --------
        >>> OnlinePolicy(window=3, decay=0.5).sample_weight(4)
        array([0.  , 0.25, 0.5 , 1.  ])
        """
        age = np.arange(m - 1, -1, -1)
        weight = np.ones(m) if self.decay is None else self.decay ** age.astype(float)
        return np.where(age < (self.span or m), weight, 0.0)


@dataclass(frozen=True, eq=False)
class OnlineStep:
    """What one step of an `OnlineLearner` decided.

    Parameters
    ----------
    weights : (k,) array
        The weights to train with next.
    learned : LearnedLoss or None
        The answer of LearnLoss; None if nothing was learned, or if no solver succeeded. Its `argmin` counts steps
        from 0.
    note : str
        What was needed beyond a plain solve, in words.
    solver_failed : bool, default False
        Whether no solver succeeded. The weights then stay as they are.
    kept : float or None
        The share of the old weights: ``weights`` are ``kept * old + (1 - kept) * learned``; None if nothing was
        learned.
    n_counted : int or None
        How many of the last checkpoints counted in the cost.
    least_scale : float or None
        The least scale that was imposed to hold the scale; None if the scale was free.
    cosines : (float, float) or None
        The cosine of the gradients of loss and error at this checkpoint, under the old weights and under ``weights``.
    """

    weights: Array
    learned: LearnedLoss | None
    note: str
    solver_failed: bool = False
    kept: float | None = None
    n_counted: int | None = None
    least_scale: float | None = None
    cosines: tuple[float, float] | None = None


class OnlineLearner:
    """A state machine from observations of one run's checkpoints to loss weights.

    Parameters
    ----------
    box : Box
        The weights that are allowed.
    policy : OnlinePolicy
        How to learn.

    Examples
    --------
    >>> box = Box.from_dict({"l2": (0.0, 10.0), "logloss": 1.0})
    >>> learner = OnlineLearner(box, OnlinePolicy(start="now", damping=0.5))
    >>> checkpoint = Observation.from_gradients(3.0, [1.0, 1.0], [5.0, 3.0], [[2.0, 1.0], [1.0, 1.0]])
    >>> learner.step(checkpoint, weights=np.array([0.0, 1.0])).weights.round(6)
    array([1., 1.])
    """

    def __init__(self, box: Box, policy: OnlinePolicy) -> None:
        self.box, self.policy = box, policy
        self._learner = Learner(box)
        self._observations: list[Observation] = []  # those that still count in the cost or in constraints
        self._n_steps = 0
        self._last_score = math.inf
        self._is_learning = policy.start == "now"
        self._is_held = False
        self._error_per_loss = 0.0  # running average of 1 / scale; 0 before the first learned loss
        self._scale = 0.0  # the scale to hold; 0 before the first learned loss
        self._n_scales = 0  # how many learned losses it comes from

    @property
    def observations(self) -> Sequence[Observation]:
        """The last observations, which still count in the cost or in constraints."""
        return tuple(self._observations)

    def step(self, observation: Observation, weights: Array) -> OnlineStep:
        """Take in the observation of a checkpoint and decide on the next weights.

        If anything fails, the learner stays as it was.

        Parameters
        ----------
        observation : Observation
            The model as it is now.
        weights : (k,) array
            The weights that it was trained with.

        Returns
        -------
        OnlineStep
            The next weights, and how they were learned.
        """
        is_learning = self._is_learning or observation.score > self._last_score
        error_per_loss, scale = self._error_per_loss, self._scale
        if self._is_held:
            step = OnlineStep(weights, None, "observed only: the weights are held")
        elif is_learning:
            step, error_per_loss, scale = self._learn(observation, weights)
        else:
            step = OnlineStep(weights, None, f"observed only: start={self.policy.start!r}")
        self._is_learning, self._last_score = is_learning, observation.score
        self._error_per_loss, self._scale = error_per_loss, scale
        self._n_scales += step.learned is not None
        self._n_steps += 1
        self._observations.append(observation)
        span = self.policy.span
        if span is not None and len(self._observations) >= span:  # the next observation pushes one out of the window
            last = len(self._observations) - span
            if self.policy.constraints == "all":  # they need it, but not its gram
                self._observations[last] = self._observations[last].without_gram()
            else:
                del self._observations[: last + 1]
        return step

    def hold(self) -> None:
        """Learn nothing from here on."""
        self._is_held = True

    def _learn(self, observation: Observation, weights: Array) -> tuple[OnlineStep, float, float]:
        """Return the step, the new average of 1 / scale, and the scale to hold from here on."""
        observations = [*self._observations, observation]
        first_step = self._n_steps + 1 - len(observations)
        options: dict[str, Any] = {
            "objective": self.policy.objective,
            "epsilon": self.policy.epsilon,
            "sample_weight": self.policy.sample_weight(len(observations)),
            "offset": self.policy.offset,
            "constrained": self.policy.constraints != "none",
        }
        least_scale = None
        try:
            learned = self._learner.learn(observations, **options)
            held = self._scale if self._n_scales != 1 else min(self._scale, learned.scale)  # the first may be odd
            if learned.objective == "calibrated" and learned.scale < self.policy.hold_scale * held:
                least_scale = self.policy.hold_scale * held
                learned = self._learner.learn(observations, min_scale=least_scale, **options)
        except SolverError as reason:
            step = OnlineStep(weights, None, str(reason), solver_failed=True)
            return step, self._error_per_loss, self._scale
        learned = self._keep_unseen(learned, observations, weights)
        scale, unit = self.policy.hold_scale * held, self._error_per_loss or 1.0  # the paper's form has scales near 0
        if learned.objective == "calibrated":
            scale = min(learned.scale, LARGEST_RISE * held) if held else learned.scale
            unit = 1 / learned.scale if learned.scale > 0 else unit
        # Damping averages the old and the learned weights, each in proportion to its 1 / scale.
        old_part = self.policy.damping * (self._error_per_loss or unit)
        new_part = (1 - self.policy.damping) * unit
        total = old_part + new_part
        damped = np.asarray((old_part * weights + new_part * learned.weights) / total)
        step = OnlineStep(
            damped,
            replace(learned, argmin=learned.argmin + first_step),
            learned.note,
            kept=old_part / total,
            n_counted=int(np.count_nonzero(options["sample_weight"])),
            least_scale=least_scale,
            cosines=(gradient_cosine(observation, weights), gradient_cosine(observation, damped)),
        )
        return step, total, scale

    def _keep_unseen(self, learned: LearnedLoss, observations: Sequence[Observation], weights: Array) -> LearnedLoss:
        """Return what was learned, with the present weights of terms that nothing was learned about.

        These are terms whose gradient is 0 in all observations, if only gradients count. LearnLoss would give them the
        weight nearest to 0. On a simplex this stands, since other terms need their weight.
        """
        if self.policy.epsilon != math.inf or self.policy.constraints != "none":
            return learned
        squares = [np.diag(observation.gram)[:-1] for observation in observations if observation.gram is not None]
        unseen = ~np.any(squares, axis=0) & (learned.weights != weights)
        if not unseen.any():
            return learned
        names = [name for name, is_unseen in zip(self.box.names, unseen, strict=True) if is_unseen]
        what = "go to other terms" if self.box.is_simplex else "stay"
        reason = f"the weights of {names} {what}, since their gradients are 0 for all parameters that are compared"
        kept = learned.weights if self.box.is_simplex else np.where(unseen, weights, learned.weights)
        return replace(learned, weights=kept, note="; ".join(filter(None, [learned.note, reason])))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the learner as JSON types."""
        return {
            "tuning": self._is_learning,
            "held": self._is_held,
            "unit": self._error_per_loss,
            "scale": self._scale,
            "scales": self._n_scales,
            "observations": [observation.to_dict() for observation in self._observations],
        }

    def load_state_dict(self, state: Mapping[str, Any], n_steps: int, last_score: float) -> None:
        """Continue from a state.

        Parameters
        ----------
        state : mapping
            The output of `state_dict`.
        n_steps : int
            The number of steps before.
        last_score : float
            The score of the last observation.
        """
        observations = [Observation.from_dict(record) for record in state["observations"]]
        is_learning = bool(state["tuning"]) or self.policy.start == "now"  # the state may be of another policy
        error_per_loss, scale = float(state["unit"]), float(state.get("scale", 0.0))
        n_scales = int(state.get("scales", 0))
        self._is_learning, self._is_held = is_learning, bool(state.get("held", False))
        self._observations = observations
        self._error_per_loss, self._scale, self._n_scales = error_per_loss, scale, n_scales
        self._n_steps, self._last_score = n_steps, last_score
