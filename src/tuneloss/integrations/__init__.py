"""Adapters for other libraries, one file per library. Importing this room imports none of them.

optuna.py  TuneLossSampler: loss weights in an Optuna study
"""
