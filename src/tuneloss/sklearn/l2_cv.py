"""What people use now, to compare with: scikit-learn's LogisticRegressionCV."""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.linear_model import LogisticRegressionCV


def l2_cv(**options: Any) -> LogisticRegressionCV:
    """LogisticRegressionCV with L2 alone, chosen by log loss, said as the installed scikit-learn wants it said."""
    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:  # from 1.8 on; L2 before
        options |= {"l1_ratios": (0,), "use_legacy_attributes": False}
    return LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000, **options)
