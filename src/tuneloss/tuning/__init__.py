"""TuneLoss in NumPy: which weights to train with next, between runs and inside one run.

    ask_tell.py          LossTuner: ask, train, tell
    proposals.py         the strategy of LossTuner: which weights come next
    local_steps.py       steps from the best run, and how far to go
    slopes.py            how the error would change with the weights, estimated from one observation
    model_step.py        expected improvement, near the best run or anywhere
    gaussian_process.py  a Gaussian process: prediction, expected improvement, fit
    coordinates.py       a box in logarithms of weights
    sampling.py          points of a box, chosen without data
    online.py            OnlinePolicy and OnlineLearner: from the checkpoints of one run to weights
    history.py           the steps of an online run
    online_journal.py    the journal of an online run
    run.py               one run, and the header of a journal
    records.py           many observations from their records at once
    ledger.py            all runs that were told, indexed
    journal.py           a file of records that survives a kill
    extension.py         a journal that continues in another box
    box_difference.py    how two boxes differ, in words
    progress.py          a progress bar

Names outside of `__all__` are private to the package.
"""

from tuneloss.tuning.ask_tell import LossTuner
from tuneloss.tuning.history import StepRecord
from tuneloss.tuning.online import OnlineLearner, OnlinePolicy, OnlineStep
from tuneloss.tuning.run import Run

__all__ = ["LossTuner", "OnlineLearner", "OnlinePolicy", "OnlineStep", "Run", "StepRecord"]
