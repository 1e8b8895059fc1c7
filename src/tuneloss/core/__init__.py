"""LearnLoss in NumPy: learn the weights of a loss from observations of trained models (the paper's section 3).

box.py          the weights that are allowed
observation.py  what is kept of one trained model
cost.py         from checked input to the problem that `solver` takes: how badly a loss predicts error, a quadratic form
learn.py        learn_loss, learn_loss_on_folds: algorithm LearnLoss
solver/         the convex program for one guess of the argmin, its solution, and which guesses are possible
tolerances.py   the numerical contract: what counts as equal, as zero and as solved

Public names are exported from `tuneloss`; everything else is private to the package.

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
