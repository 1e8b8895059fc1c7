"""The door for scikit-learn: an estimator that learns the weights of its loss as it fits.

softmax.py     softmax regression, the terms of its loss, and its Hessian
solve.py       a fit: the params of least loss
observe.py     what LearnLoss sees of a fit
search.py      weights by a few warm-started fits
piecewise.py   a convex regularizer whose form is learned
online.py      weights and that regularizer in one run
splits.py      which examples validate
given.py       the examples that a fit is given
checks.py      input that breaks a rule is refused in words
estimator.py   TunedLogisticRegression
saved.py       a fitted classifier as one file
l2_cv.py       scikit-learn's own way, to compare with
"""

from tuneloss.sklearn.estimator import TunedLogisticRegression

__all__ = ["TunedLogisticRegression"]
