"""Penalties, label smoothing, dropout and input noise on MLPs that overfit their training data."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from torch import Tensor

from benchmarks.arena.problem import Batches, Instance, Problem, features, log_loss, log_uniform, mlp
from tuneloss.torch import L1, L2, Augmented, Dropout, UniformLabels

UPPER = {"smooth": 0.5, "dropout": 3.0, "noise": 3.0, "l1": 3e-3, "l2": 3e-2}
Parts = list[tuple[Tensor, Tensor]]  # train, validation, test


def five_terms(
    parts: Parts, seed: int, *, hidden: int, epochs: int, batch: int, n_classes: int, rate: float = 1e-3
) -> Instance:
    """Make the instance of a data set: log loss and five terms whose weights are free."""
    train, validation, test = parts
    terms = {
        "logloss": log_loss,
        "smooth": UniformLabels(),
        "dropout": Dropout(0.5),
        "noise": Augmented(lambda x: x + torch.randn_like(x)),
        "l1": L1(),
        "l2": L2(),
    }
    return Instance(
        model=mlp(train[0].shape[1], hidden, n_classes, seed),
        terms=terms,
        box={"logloss": 1.0} | {name: (0.0, high) for name, high in UPPER.items()},
        error=log_loss,
        train=Batches(train, batch, seed),
        validation=list(zip(*(column.split(512) for column in validation), strict=True)),
        test=[test],
        epochs=epochs,
        plain={"logloss": 1.0},
        random=lambda rng: log_uniform(rng, list(UPPER), UPPER),
        learning_rate=rate,
    )


def of_features(seed: int, *, name: str, n: int, epochs: int, rate: float = 1e-3) -> Instance:
    """Draw training examples of a features file."""
    data, rng = features(name), np.random.default_rng(seed)
    parts = [data.of(0, rng, n), data.of(1, rng, 1000), data.of(2, rng)]
    return five_terms(parts, seed, hidden=64, epochs=epochs, batch=64, n_classes=data.n_classes, rate=rate)


def of_table(seed: int, *, load: str, n_train: int, n_validation: int, hidden: int, epochs: int) -> Instance:
    """Draw a split of one of scikit-learn's tables."""
    loaders = {"digits": load_digits, "breast_cancer": load_breast_cancer, "wine": load_wine}
    x, y = loaders[load](return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    rows = np.split(order, [n_train, n_train + n_validation])
    spread = x[rows[0]].std(axis=0)
    x = (x - x[rows[0]].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    parts = [(torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows]
    return five_terms(parts, seed, hidden=hidden, epochs=epochs, batch=20, n_classes=int(y.max()) + 1, rate=5e-3)


def flipped(seed: int) -> Instance:
    """Draw two classes in 40 dimensions, of which 10 matter; 15% of the training and validation labels are wrong."""
    x, y = make_classification(
        2500, 40, n_informative=10, n_redundant=5, n_clusters_per_class=4, flip_y=0.0, random_state=seed
    )
    rng = np.random.default_rng(seed)
    y[:500] = np.where(rng.random(500) < 0.15, 1 - y[:500], y[:500])
    rows = np.split(np.arange(len(y)), [200, 500])
    parts = [(torch.tensor(x[r], dtype=torch.float32), torch.tensor(y[r])) for r in rows]
    return five_terms(parts, seed, hidden=64, epochs=60, batch=20, n_classes=2, rate=2e-3)


PROBLEMS = [
    Problem(
        "MLP, histology", "regularizers", "choose",
        partial(of_features, name="nct_crc_he_3class", n=1000, epochs=30), needs_features=True,
    ),
    Problem(
        "MLP, digits", "regularizers", "choose",
        partial(of_table, load="digits", n_train=120, n_validation=400, hidden=64, epochs=60),
    ),
    Problem("MLP, flipped labels", "regularizers", "choose", flipped),
    Problem(
        "MLP, flowers", "regularizers", "report",
        partial(of_features, name="tf_flowers", n=1000, epochs=30), needs_features=True,
    ),
    Problem(
        "MLP, breast cancer", "regularizers", "report",
        partial(of_table, load="breast_cancer", n_train=60, n_validation=200, hidden=64, epochs=80),
    ),
    Problem(
        "MLP, pets", "regularizers", "report",
        partial(of_features, name="oxford_iiit_pet", n=700, epochs=30, rate=2e-3), needs_features=True,
    ),
]  # fmt: skip
