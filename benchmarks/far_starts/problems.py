"""Small training problems that are solved exactly, so that the error is a smooth function of the loss weights.

Each problem draws its data, its box of 6 to 10 decades per weight, and the first weights anywhere in that box. The
coordinates of a box are the natural logarithms of its free weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn import datasets

from tuneloss import Box, Observation
from tuneloss.types import Array

DECADES = (6.0, 10.0)  # width of the range of a weight
OFF_CENTER = 2.5  # decades: how far the middle of a range may be from a usual value of its weight
STARTS = 8  # of the search for the best error
FLIPPED = 0.1  # fraction of labels of a table that are drawn anew, so that the least error is not near 0
FITTED = "fit"  # name of the term that is pinned at 1


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model.

    Parameters
    ----------
    error : float
        Its validation error.
    gradient : (n,) array
        The gradient of the error by the parameters.
    features : (k + 1,) array
        The values of the penalties and, last, of the term that is pinned.
    jacobian : (n, k + 1) array
        Their gradients.
    hessian : (n, n) array
        The second derivative of the training loss.
    """

    error: float
    gradient: Array
    features: Array
    jacobian: Array
    hessian: Array


class Problem(ABC):
    """A model with k penalties whose weights are tuned.

    Parameters
    ----------
    rng : numpy.random.Generator
        Draws the box and the start.
    names : sequence of str
        Names of the penalties.
    usual : sequence of float
        The decimal logarithm of a usual weight of each penalty.
    """

    def __init__(self, rng: np.random.Generator, names: list[str], usual: list[float]) -> None:
        width = rng.uniform(*DECADES, len(names))
        middle = np.array(usual) + rng.uniform(-OFF_CENTER, OFF_CENTER, len(names))
        self.low, self.high = np.log(10) * (middle - width / 2), np.log(10) * (middle + width / 2)
        self.names = names
        lower, upper = np.append(np.exp(self.low), 1.0), np.append(np.exp(self.high), 1.0)
        self.box = Box(lower, upper, [*names, FITTED])
        self.start = self.weights(rng.uniform(self.low, self.high))

    @abstractmethod
    def train(self, weights: Array) -> Model:
        """Train with these weights (k,) of the penalties."""

    def weights(self, logs: Array) -> dict[str, float]:
        """Return weights by name."""
        return self.box.as_dict(np.append(np.exp(logs), 1.0).clip(self.box.lower, self.box.upper))

    def observe(self, weights: dict[str, float]) -> Observation:
        """Train with these weights, and observe the model."""
        model = self.train(self.box.as_array(weights)[:-1])
        named = dict(zip(self.box.names, model.features.tolist(), strict=True))
        return Observation.from_gradients(model.error, named, model.gradient, model.jacobian)

    def hypergradient(self, logs: Array) -> tuple[float, Array]:
        """Return the error of the model that is trained with exp(logs), and its derivative by `logs`.

        At the minimum of the loss, d params / d weight_j = -hessian^-1 @ jacobian_j (the implicit function theorem).
        """
        weights = np.exp(logs)
        model = self.train(weights)
        adjoint = np.linalg.solve(model.hessian, model.gradient)
        return model.error, -(model.jacobian[:, :-1].T @ adjoint) * weights

    def least_error(self) -> float:
        """Return the least error that L-BFGS finds on exact hypergradients, from the middle and from random starts."""
        rng = np.random.default_rng(0)
        starts = [(self.low + self.high) / 2, *rng.uniform(self.low, self.high, (STARTS - 1, len(self.names)))]
        bounds = list(zip(self.low, self.high, strict=True))
        options = {"maxiter": 100}
        return min(
            float(minimize(self.hypergradient, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)
            for x in starts
        )


class Ridge(Problem):
    """Least squares with one to three quadratic penalties: size, roughness, or the sizes of groups of coefficients."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([1, seed])
        d, n, n_validation = int(rng.integers(10, 50)), int(rng.integers(20, 150)), int(rng.integers(60, 400))
        truth = rng.normal(size=d) * (np.arange(d) < rng.integers(3, d))
        truth = np.cumsum(truth) / 3 if rng.random() < 0.4 else truth
        columns, noise = np.exp(rng.normal(size=d) * rng.choice([0.0, 0.8])), rng.uniform(0.3, 4.0)
        x = rng.normal(size=(n + n_validation, d)) * columns
        y = x @ truth + noise * rng.normal(size=len(x))
        self.x, self.y, self.validation_x, self.validation_y = x[:n], y[:n], x[n:], y[n:]
        roughness = np.diff(np.eye(d), axis=0)
        group = rng.permutation(d) % 3
        self.penalties = [
            [np.eye(d)],
            [np.eye(d), roughness.T @ roughness],
            [np.diag((group == g).astype(float)) for g in range(3)],
        ][seed % 3]
        are_means = bool(rng.random() < 0.5)  # whether losses are means or sums over examples
        self.per_train, self.per_validation = (1 / n, 1 / n_validation) if are_means else (1.0, 1.0)
        names = [f"penalty {j}" for j in range(len(self.penalties))]
        super().__init__(rng, names, [-0.5 if are_means else 1.0] * len(names))

    def train(self, weights: Array) -> Model:
        penalty = sum(w * matrix for w, matrix in zip(weights, self.penalties, strict=True))
        hessian = 2 * (self.per_train * self.x.T @ self.x + penalty)
        hessian[np.diag_indices_from(hessian)] += 1e-12 * np.trace(hessian) / len(hessian)
        params = np.linalg.solve(hessian, 2 * self.per_train * self.x.T @ self.y)
        residual, missed = self.x @ params - self.y, self.validation_x @ params - self.validation_y
        columns = [2 * matrix @ params for matrix in self.penalties] + [2 * self.per_train * self.x.T @ residual]
        features = [params @ matrix @ params for matrix in self.penalties] + [self.per_train * residual @ residual]
        gradient = 2 * self.per_validation * self.validation_x.T @ missed
        error = float(self.per_validation * missed @ missed)
        return Model(error, gradient, np.array(features), np.column_stack(columns), hessian)


@lru_cache(maxsize=3)
def _table(name: str) -> tuple[Array, Array]:
    """Load a table of scikit-learn, standardised; of digits, the first 10 principal components."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    x = (left * sizes)[:, : 10 if name == "digits" else None]
    return x / x.std(), y


class Logistic(Problem):
    """Softmax regression with one to six terms: L2 (whole or by groups), a smooth L1, and uniform labels."""

    ROUNDED = 1e-2  # |w| is rounded off to sqrt(w^2 + ROUNDED^2)
    LEAST_L2 = 1e-6  # always there, so that there is a minimum

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([2, seed])
        x, y = self._data(rng, ["digits", "breast_cancer", "wine", "made", "made"][seed % 5])
        order, n = rng.permutation(len(x)), int(rng.integers(40, 150))
        x, y = np.column_stack([x, np.ones(len(x))])[order[: n + 300]], y[order[: n + 300]]
        self.x, self.validation_x, d = x[:n], x[n:], x.shape[1]
        self.n_classes = int(y.max()) + 1
        labels = np.eye(self.n_classes)[y]
        self.labels, self.validation_labels = labels[:n], labels[n:]
        n_terms = int(rng.integers(1, 7))
        n_groups = max(1, n_terms - 2)
        group = rng.permutation(d - 1) % n_groups
        self.groups = [np.append(group == g, False).astype(float) for g in range(n_groups)]
        self.with_uniform, self.with_l1 = n_terms > 1, n_terms > 2
        self.is_penalised = np.repeat(np.append(np.ones(d - 1), 0.0), self.n_classes)
        self.params = np.zeros(d * self.n_classes)  # of the last model: where the next one starts
        names = [f"l2 {g}" for g in range(n_groups)] + ["uniform"] * self.with_uniform + ["l1"] * self.with_l1
        usual = [-2.0] * n_groups + [-1.5] * self.with_uniform + [-2.0] * self.with_l1
        super().__init__(rng, names, usual)

    @staticmethod
    def _data(rng: np.random.Generator, name: str) -> tuple[Array, Array]:
        if name != "made":
            x, y = _table(name)
            y = y.copy()
            flipped = rng.random(len(y)) < FLIPPED
            y[flipped] = rng.integers(y.max() + 1, size=int(flipped.sum()))
            return x, y
        d, n_classes = int(rng.integers(8, 25)), int(rng.integers(2, 5))
        x = rng.normal(size=(600, d))
        truth = rng.normal(size=(d, n_classes)) * (np.arange(d) < d // 2)[:, None] * rng.uniform(0.3, 1.5)
        y = (x @ truth + rng.gumbel(size=(600, n_classes))).argmax(axis=1)
        flipped = rng.random(600) < rng.choice([0.0, 0.15])
        y[flipped] = rng.integers(n_classes, size=int(flipped.sum()))
        return x, y

    def _parts(self, weights: Array) -> tuple[Array, float, float]:
        """Return the L2 weight of each parameter, the weight of uniform labels, and that of L1."""
        n_groups = len(self.groups)
        l2 = sum(w * mask for w, mask in zip(weights, self.groups, strict=False))
        uniform = float(weights[n_groups]) if self.with_uniform else 0.0
        l1 = float(weights[n_groups + 1]) if self.with_l1 else 0.0
        return np.repeat(l2, self.n_classes), uniform, l1

    def _loss(self, params: Array, targets: Array, l2: Array, l1: float) -> tuple[float, Array]:
        """Return the loss and log probabilities; the targets (n, c) are not normalised."""
        log_p = log_softmax(self.x @ params.reshape(-1, self.n_classes), axis=1)
        rounded = np.sqrt(params**2 + self.ROUNDED**2) - self.ROUNDED
        penalty = (l2 + self.LEAST_L2 / 2) @ params**2 + l1 * self.is_penalised @ rounded
        return float(penalty - (targets * log_p).sum() / len(self.x)), log_p

    def train(self, weights: Array) -> Model:
        """Minimise the loss by Newton's method with step halving, from the last model."""
        l2, uniform, l1 = self._parts(weights)
        targets = self.labels + uniform / self.n_classes
        params, n, c = self.params, len(self.x), self.n_classes
        loss, log_p = self._loss(params, targets, l2, l1)
        for _ in range(100):
            p, rounded = np.exp(log_p), np.sqrt(params**2 + self.ROUNDED**2)
            slope = (self.x.T @ ((1 + uniform) * p - targets)).ravel() / n
            slope += (2 * l2 + self.LEAST_L2) * params + l1 * self.is_penalised * params / rounded
            outer = np.einsum("nc,ce->nce", p, np.eye(c)) - p[:, :, None] * p[:, None]
            hessian = np.einsum("ni,nce,nj->icje", self.x, outer, self.x, optimize=True).reshape(len(params), -1)
            hessian *= (1 + uniform) / n
            hessian.flat[:: len(params) + 1] += (
                2 * l2 + self.LEAST_L2 + l1 * self.is_penalised * self.ROUNDED**2 / rounded**3
            )
            step = np.linalg.solve(hessian, slope)
            decrease, length = slope @ step, 1.0
            if decrease < 1e-16 * (1 + abs(loss)):
                break
            while length > 1e-8:
                new_loss, new_log_p = self._loss(params - length * step, targets, l2, l1)
                if new_loss <= loss - 1e-4 * length * decrease:
                    break
                length /= 2
            params, loss, log_p = params - length * step, new_loss, new_log_p
        self.params = params
        return self._model(params, log_p, hessian)

    def _model(self, params: Array, log_p: Array, hessian: Array) -> Model:
        n, c, p = len(self.x), self.n_classes, np.exp(log_p)
        masks = [np.repeat(mask, c) for mask in self.groups]
        features, columns = [mask @ params**2 for mask in masks], [2 * mask * params for mask in masks]
        if self.with_uniform:
            features.append(-log_p.sum() / (n * c))
            columns.append((self.x.T @ (p - 1 / c)).ravel() / n)
        if self.with_l1:
            rounded = np.sqrt(params**2 + self.ROUNDED**2)
            features.append(self.is_penalised @ (rounded - self.ROUNDED))
            columns.append(self.is_penalised * params / rounded)
        features.append(-(self.labels * log_p).sum() / n)
        columns.append((self.x.T @ (p - self.labels)).ravel() / n)
        log_q = log_softmax(self.validation_x @ params.reshape(-1, c), axis=1)
        m = len(self.validation_x)
        error = -float((self.validation_labels * log_q).sum()) / m
        gradient = (self.validation_x.T @ (np.exp(log_q) - self.validation_labels)).ravel() / m
        return Model(error, gradient, np.array(features), np.column_stack(columns), hessian)


FAMILIES: dict[str, type[Problem]] = {"ridge": Ridge, "logistic": Logistic}
