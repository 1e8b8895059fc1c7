"""Figure 1: three quadratic losses on a one-dimensional problem.

A model is one number, theta. Its test error is piecewise linear in theta, and a loss must be quadratic. Five models are
trained. A good loss has an argmin of low error. That is not the same as predicting the errors of the trained models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from tuneloss import Box, Observation, learn_loss
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record
from tuneloss.report.axes import style
from tuneloss.report.colors import INK, SERIES
from tuneloss.types import Array

KNOTS = np.array([[-2.0, 4.0], [-1.0, 1.6], [0.0, 0.5], [3.0, 2.0]])  # (theta, error); error is linear between them
TRAINED = np.array([-1.7, -1.0, 0.6, 1.5, 2.8])  # Theta_0


class Figure1(Experiment):
    """Three losses fitted to the same five models; nothing is trained."""

    NAME = "figure1"

    def tables(self, records: Sequence[Record] = ()) -> list[Table]:
        """Return one table: the argmin of each loss, and the error there."""
        fits = fit_losses()
        rows = [[loss.name, f"{loss.argmin:.3f}", f"{loss.error:.3f}"] for loss in fits.losses]
        rows.append(["best trained model", f"{fits.best:.3f}", f"{fits.best_error:.3f}"])
        return [Table(("loss", "argmin", "error there"), rows)]

    def figure(self, records: Sequence[Record] = ()) -> Figure:
        """Draw the error and the three losses."""
        return draw_figure1(fit_losses())


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A quadratic loss.

    Parameters
    ----------
    name : str
        Name of the loss.
    coefficients : (3,) array
        The coefficients of theta^2, theta and 1, in units of error.
    argmin : float
        The theta of least loss.
    error : float
        The error at `argmin`.
    """

    name: str
    coefficients: Array
    argmin: float
    error: float


@dataclass(frozen=True, eq=False)
class Fits:
    """The trained models and the three losses fitted to them.

    Parameters
    ----------
    trained, errors : (m,) array
        The trained models and their errors.
    best, best_error : float
        The model of least error, and that error.
    losses : tuple of Quadratic
        The three losses.
    """

    trained: Array
    errors: Array
    best: float
    best_error: float
    losses: tuple[Quadratic, Quadratic, Quadratic]


def error_at(theta: Array | float) -> Array:
    """Return the errors of models; the error is linear between the knots."""
    return np.asarray(np.interp(theta, KNOTS[:, 0], KNOTS[:, 1]))


def slope_at(theta: Array) -> Array:
    """Return the derivative of the error; at a knot, the derivative from the right."""
    slopes = np.diff(KNOTS[:, 1]) / np.diff(KNOTS[:, 0])
    piece = np.searchsorted(KNOTS[:, 0], theta, side="right") - 1
    return np.asarray(slopes[np.clip(piece, 0, len(slopes) - 1)])


def fit_losses(trained: Array = TRAINED) -> Fits:
    """Fit the three losses to the trained models.

    (a) is the least squares fit of the errors. (b) is the squared distance to the best model. (c) is the answer of
    LearnLoss: among the trained models, the best one must be its argmin, and near it the loss matches error and slope.

    Parameters
    ----------
    trained : (m,) array
        The trained models.

    Returns
    -------
    Fits

    Examples
    --------
    >>> fits = fit_losses()
    >>> [round(loss.error, 2) for loss in fits.losses], round(fits.best_error, 2)
    ([0.94, 0.8, 0.68], 0.8)
    """
    errors = error_at(trained)
    best = float(trained[np.argmin(errors)])
    best_error = float(errors.min())
    losses = (
        _quadratic("least squares fit", np.polyfit(trained, errors, 2)),
        _quadratic("distance to the best model", np.array([1.0, -2 * best, best**2 + best_error])),
        _quadratic("learned loss", _learned(trained, errors, best)),
    )
    return Fits(trained, errors, best, best_error, losses)


def _learned(trained: Array, errors: Array, best: float) -> Array:
    """Return the answer of LearnLoss on (theta^2, theta, 1). Models far from the best one count less in the cost."""
    box = Box.from_dict({"square": 1.0, "theta": (-100.0, 100.0), "constant": (-100.0, 100.0)})
    observations = [
        Observation.from_gradients(error, [theta**2, theta, 1.0], [slope], [[2 * theta, 1.0, 0.0]])
        for theta, error, slope in zip(trained, errors, slope_at(trained), strict=True)
    ]
    distance = np.abs(trained - best)
    width = np.sort(distance)[1]  # to the nearest other model
    learned = learn_loss(observations, box, sample_weight=np.exp(-0.5 * (distance / width) ** 2))
    return learned.weights / learned.scale


def _quadratic(name: str, coefficients: Array) -> Quadratic:
    """Return a quadratic loss with its argmin."""
    argmin = -float(coefficients[1]) / (2 * float(coefficients[0]))
    return Quadratic(name, coefficients, argmin, float(error_at(argmin)))


def draw_figure1(fits: Fits) -> Figure:
    """Draw the error, the trained models and the three losses; a diamond marks the error at the argmin of each loss."""
    figure = Figure(figsize=(7.2, 5.2), layout="constrained", facecolor="white")
    axes = figure.subplots()
    theta = np.linspace(KNOTS[0, 0], KNOTS[-1, 0], 400)
    axes.plot(theta, error_at(theta), color=INK, linewidth=2.4, label="test error")
    for color, loss, letter in zip((SERIES[1], SERIES[3], SERIES[0]), fits.losses, "abc", strict=True):
        label = f"({letter}) {loss.name}"
        axes.plot(theta, np.polyval(loss.coefficients, theta), color=color, linewidth=1.8, label=label)
        axes.plot([loss.argmin] * 2, [0, loss.error], color=color, linewidth=1, linestyle=(0, (2, 2)))
        axes.plot(loss.argmin, loss.error, "D", color=color, markersize=8, markeredgecolor="white", zorder=4)
    axes.plot(fits.trained, fits.errors, "o", color=INK, markersize=7, zorder=3, label="trained models")
    axes.set_xlabel("model")
    axes.set_ylabel("error or loss")
    axes.set_xlim(KNOTS[0, 0], KNOTS[-1, 0])
    axes.set_ylim(0, 3.5)
    axes.plot([], [], "D", color="none", markeredgecolor=INK, markersize=7, label="error at the argmin of a loss")
    style(axes)
    figure.legend(frameon=False, labelcolor=INK, loc="outside lower center", ncols=2)
    return figure
