"""The numerical contract of LearnLoss: what counts as equal, as zero and as solved.

"Scaled" means in the coordinates of `solver/program.py`, where the cost matrix has unit diagonal and the largest term
that the box forces to count is 1.
"""

from __future__ import annotations

import numpy as np

ROUNDING = float(np.finfo(np.float64).eps)

# Input.
BOUND_SIZES = (1e-100, 1e100)  # smallest and largest finite bound except 0; beyond, products with squares overflow
WEIGHT_SLACK = 1e-6  # relative; weights this far outside of a box, as after a trip through float32, count as inside

# Solutions of the quadratic program: residuals of the KKT conditions, relative.
KKT_GOOD = 1e-9  # no second solver is asked
KKT_ACCEPTED = 1e-7  # the largest residual that is returned to a caller
KKT_TIE_RULE = 1e-5  # of the program that chooses among several optimal solutions
RANK = 2e-14  # part of the trace; smaller eigenvalues count as 0

# Weights that are returned.
SNAP = 1e-10  # scaled, relative to the largest weight; a weight nearer than this to a bound or to 0 is set to it
SELECTS_SCALED = 1e-10  # scaled; how far the loss of the argmin may exceed another's, at unit rows and largest weight 1
SELECTS = 1e-8  # the same in the caller's units, relative to the largest difference between models in a weighted term
UNRELATED = 1e-7  # scaled; weights / scale below this count as 0; at 1, a term is as large as the error
LEAST_SCALE = 1e6  # a least scale this many times above the free one is not used: weights / scale would count as 0
CAP = 1e3  # scaled; an unbounded weight is at most this many times the pinned term
FINITE_CAP = 1e3  # a finite upper bound may exceed that cap by this factor

# Proofs that an observation cannot be selected, or that several can be selected together.
MIXTURE_MARGIN = 1e-9  # relative to the sum of sizes; how far below the guess a mixture must be
ROWS_HELD = 1e-9  # scaled; how far rows of unit length may be above 0 at a largest weight of 1
