"""The paper's experiments, which `tuneloss paper` and `tuneloss demo` run. Only experiment.py is public.

One experiment per file:

    table1.py         every tuner after 10 runs
    table2.py         sizes of the data sets
    figure1.py        three losses on a one-dimensional problem
    figure2.py        every tuner by the number of runs
    figure3.py        a regularizer learned inside one training run
    ablation.py       which choices matter
    demo.py           two small comparisons that take seconds; its runs, figures and HTML page are in demo_*.py

What they share:

    experiment.py     Experiment, Unit, Table; run_experiment, run_units and side_by_side
    results.py        files of records
    statistics.py     best model so far, 95% intervals, paired differences
    tuner_runs.py     full training runs whose weights a tuner chooses
    online_run.py     one training run with an online tuner inside
    tuners.py         the tuners that are compared
    datasets.py       labelled examples, in three parts
    terms.py          the five terms of the loss, and what a tuner is told of a model
    hypergradient.py  the derivative of the validation log loss by the weights of the terms
    trainer.py        AdaGrad, one example per step; kernels.py: its compiled loops
"""
