"""TuneLoss in NumPy: which weights to train with next, between runs and inside one run.

ask_tell.py   LossTuner: ask, train, tell
turns.py      which form of the cost learns next
sampling.py   points of a box without data
run.py        the record of one run
ledger.py     all runs that were told, indexed
journal.py    a file of records that survives a kill
progress.py   a progress bar
locality.py   how much old checkpoints of one run count
history.py    the steps of an online run
"""
