"""The paper's section 3 in NumPy: learn the weights of a loss from observations of trained models.

    checks.py       input that breaks a rule is refused in words
    box.py          which weights are allowed
    observation.py  what is kept of one trained model
    cost.py         how badly a loss predicts error: a quadratic form
    forms.py        that cost, subject to box and argmin, as a convex program; in scaled coordinates
    qp.py           solves convex programs, and verifies the solutions
    reach.py        which observations can be the argmin at all
    learn.py        learn_loss: all of these together (algorithm LearnLoss)
    folds.py        the same on the folds of cross-validation
    sample.py       points of a box without data
    runs.py         the record of what was told
    told.py         all of these records, and what every proposal asks of them
    journal.py      a file of records that survives a kill
    progress.py     a progress bar
    turns.py        which form of the cost learns next
    tune.py         LossTuner: ask, train, tell (algorithm TuneLoss)

| paper                           | here                     | shape          |
|---------------------------------|--------------------------|----------------|
| theta, a model of Theta_0       | one `Observation`        |                |
| lambda, in F                    | `weights`, in a `Box`    | (k,)           |
| phi(theta)                      | `features`               | (k,), (m, k)   |
| validation error, its gradient  | `error`, `gradient`      | scalar, (n,)   |
| J                               | `jacobian`               | (n, k)         |
| [J g]' [J g]                    | `gram`                   | (k + 1, k + 1) |
| alpha                           | `scale`                  | scalar         |
| cost, as z' P z                 | `cost_matrix`            | (k + 1, k + 1) |
| epsilon                         | `epsilon`                | scalar         |
| i*                              | `argmin`, a `guess` at it | index         |
| lambda / alpha, 1 / alpha       | `mu`, `t`                | (k,), scalar   |
"""
