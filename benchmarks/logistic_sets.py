"""The data sets of `tuned_logistic.py`, in two halves: rules are chosen on one, and the other is only reported.

The halves were fixed before the rules were changed. Splits of the choosing half have the seeds 0, 1, ...; splits of the
reporting half have the seeds 1000, 1001, ... The tables of scikit-learn are standardised and have 60% for training.
Each made table is drawn anew for each seed, with 5000 test rows.

The first split (seed 0) of a features file in TUNELOSS_DATA is its own, training and validation examples together
against test; all others are drawn, stratified, of the same sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

N_TEST = 5000  # test rows of a made table
FIRST_SEED = {"choose": 0, "report": 1000}
IMAGES = ("tf_flowers", "nct_crc_he_3class", "oxford_iiit_pet", "caltech101")


def table(load: Callable, seed: int, noise: int = 0):
    """A table of scikit-learn, with columns of noise."""
    x, y = load(return_X_y=True)
    x = np.hstack([x, np.random.default_rng(seed).normal(size=(len(x), noise))])
    x, x_test, y, y_test = train_test_split(x, y, train_size=0.6, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(x)
    return scaler.transform(x), y, scaler.transform(x_test), y_test


def made(
    seed: int,
    n: int,
    d: int,
    *,
    matter: int | None = None,
    signal: float = 1.5,
    classes: int = 2,
    flips: float = 0.0,
    correlation: float = 0.0,
    level: float = 0.0,
):
    """Normal inputs and labels by softmax.

    Parameters
    ----------
    matter : int, optional
        How many inputs matter; all by default.
    signal : float
        The standard deviation of each logit.
    flips : float
        The fraction of labels that are drawn at random among the other classes.
    correlation : float
        That of neighbouring inputs.
    level : float
        How much lower the logit of each further class is.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + N_TEST, d))
    for j in range(1, d if correlation else 0):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    coef = np.zeros((d, classes))
    used = rng.permutation(d)[: matter or d]
    coef[used] = rng.choice([-1.0, 1.0], size=(len(used), classes)) * rng.uniform(0.5, 1.5, size=(len(used), classes))
    z = x @ coef
    z = signal * z / z.std(axis=0) - level * np.arange(classes)
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    flipped = rng.random(len(y)) < flips
    y[flipped] = (y[flipped] + rng.integers(1, classes, size=flipped.sum())) % classes
    y[:classes] = y[n : n + classes] = np.arange(classes)  # no class is missing
    return x[:n], y[:n], x[n:], y[n:]


def text(seed: int, n: int, d: int, *, classes: int = 2, length: int = 80, strength: float = 0.7):
    """Word counts, as log(1 + count) in a sparse matrix; one word in ten is more or less frequent in some classes."""
    rng = np.random.default_rng(seed)
    words = rng.permutation(1 / np.arange(3.0, d + 3.0))
    tilt = strength * rng.normal(size=(classes, d)) * (rng.random(d) < 0.1)
    shares = words * np.exp(tilt)
    shares /= shares.sum(axis=1, keepdims=True)
    y = rng.integers(classes, size=n + N_TEST)
    rows = [rng.multinomial(rng.poisson(length), shares[label]) for label in y]
    x = sparse.csr_matrix(np.log1p(np.array(rows, dtype=float)))
    return x[:n], y[:n], x[n:], y[n:]


def images(name: str, seed: int):
    """Features of images, not standardised."""
    file = np.load(Path(os.environ["TUNELOSS_DATA"]) / f"{name}.npz")
    x, y, test = file["features"].astype(np.float64), file["labels"].astype(int), file["split"] == 2
    if seed == 0:
        return x[~test], y[~test], x[test], y[test]
    x, x_test, y, y_test = train_test_split(x, y, train_size=int((~test).sum()), stratify=y, random_state=seed)
    return x, y, x_test, y_test


CHOOSE = {
    "digits": partial(table, load_digits),
    "sparse": partial(made, n=400, d=200, matter=4, signal=0.7, flips=0.1),
    "dense": partial(made, n=600, d=60, signal=1.5),
    "noisy": partial(made, n=500, d=40, matter=10, signal=1.5, flips=0.3),
    "classes": partial(made, n=2000, d=40, signal=3.0, classes=25),
    "wide": partial(made, n=100, d=2000, matter=5, signal=2.0),
    "text": partial(text, n=1500, d=3000, classes=4),
    "rows": partial(made, n=20000, d=100, matter=20, signal=1.5),
    "tf_flowers": partial(images, "tf_flowers"),
    "oxford_iiit_pet": partial(images, "oxford_iiit_pet"),
}
REPORT = {
    "breast_cancer": partial(table, load_breast_cancer),
    "wine_noise": partial(table, load_wine, noise=100),
    "sparse_correlated": partial(made, n=400, d=200, matter=6, signal=1.5, correlation=0.8),
    "unbalanced": partial(made, n=1500, d=50, matter=12, signal=1.5, level=4.0),
    "few_rows": partial(made, n=80, d=12, signal=1.5),
    "wide_dense": partial(made, n=150, d=1000, signal=3.0, correlation=0.9),
    "flips": partial(made, n=900, d=80, signal=2.0, classes=3, flips=0.2),
    "sparse_classes": partial(made, n=3000, d=60, matter=8, signal=2.5, classes=30),
    "text_two": partial(text, n=800, d=5000, classes=2, length=50),
    "rows_classes": partial(made, n=20000, d=40, signal=2.0, classes=5, flips=0.1),
    "nct_crc_he_3class": partial(images, "nct_crc_he_3class"),
    "caltech101": partial(images, "caltech101"),
}
HALVES = {"choose": CHOOSE, "report": REPORT}
SETS = CHOOSE | REPORT
