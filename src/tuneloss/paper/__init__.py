"""The paper's experiments: one file a figure or table (figure3_shown.py beside figure3.py), and what they are made of.

datasets.py     labelled examples, in three parts
terms.py        the five terms of the loss, and what a tuner is told of a model
trainer.py      AdaGrad, one example a step; kernels.py, prefetch.py: its compiled loops
tuners.py       the tuners that are compared
experiments.py  runs of tuners, repeat by repeat; parallel.py: side by side; results.py: kept as JSON lines
ablation.py     which choices matter
demo.py         a small comparison that takes seconds
"""
