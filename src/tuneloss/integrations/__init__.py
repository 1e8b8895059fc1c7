"""Adapters for other libraries, one file per library. Importing this room imports none of them.

lightning.py  TuneLossCallback: loss weights while a Lightning Trainer trains
optuna.py     TuneLossSampler: loss weights in an Optuna study
"""
