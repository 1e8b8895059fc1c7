"""For scikit-learn: an estimator that learns the weights of its loss as it fits.

estimator.py    TunedLogisticRegression
examples.py     reading and checking the examples of a fit
splits.py       which examples train and which validate
softmax.py      softmax regression: the terms of its loss, their gradients, and its Hessian
fitting.py      one fit: the params of least loss
observe.py      an observation of one fit, for LearnLoss
fold_fits.py    one run of the search: one fit per fold, and which of two runs is better
paths.py        paths of L2 and L1 weights
search.py       strategy "runs": the paths, then learned weights
online.py       strategy "online": weights and a convex regularizer, learned in one run
preparation.py  how columns of numbers and categories become inputs
comparison.py   a comparison of four models on the same rows
scores.py       scores on test rows, and their bootstrap intervals
coefficients.py the largest coefficients, by name
saved_model.py  a fitted classifier with its preparation
model_file.py   such a classifier as one file
saving.py       save_model: a fitted estimator as such a file
fit_journal.py  the journal of `tuneloss fit`
fit_files.py    the files of `tuneloss fit`

Users may import what is in `__all__`; everything else is private.
"""

from tuneloss.sklearn.comparison import ModelComparison, TrainTestRows, compare_models, hold_out
from tuneloss.sklearn.estimator import TunedLogisticRegression
from tuneloss.sklearn.fit_files import check_replaceable, write_fit
from tuneloss.sklearn.model_file import load_model
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.saved_model import SavedModel
from tuneloss.sklearn.saving import save_model

__all__ = [
    "ModelComparison",
    "Preparation",
    "SavedModel",
    "TrainTestRows",
    "TunedLogisticRegression",
    "check_replaceable",
    "compare_models",
    "hold_out",
    "load_model",
    "save_model",
    "write_fit",
]
