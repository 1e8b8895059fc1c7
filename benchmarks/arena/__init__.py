"""The arena: small problems on which methods of choosing loss weights in one training run are compared.

Each kind of problem has problems to choose defaults on and other problems, with other data and other seeds, to report
on. The split is fixed in the `half` of each problem.

problem.py    what a problem is
problems/     the problems, one file per kind
methods.py    the methods: fixed weights, the field's own, hypergradients, OnlineTuner
run.py        one training run
score.py      scores, tables and the picture
__main__.py   the command: ``python -m benchmarks.arena --help``
"""
