"""A search on a cluster: `python -m tests.integrations.ray_problem ADDRESS FOLDER` runs one until it is killed."""

import os
import sys
import time
from pathlib import Path

import numpy as np

from tests import ray_cluster  # noqa: F401  (before Ray is imported)
from tuneloss import Box, Observation

BOX = Box.from_dict({"l2": (0.01, 100.0), "pull/up": (0.0, 2.0), "logloss": 1.0})
N_TRIALS, AT_ONCE = 8, 4


def train(weights):
    """Ridge regression that is also pulled to 0.3 in each coordinate; exact, with gradients."""
    rng = np.random.default_rng(0)
    X, noise, truth = rng.normal(size=(40, 12)), rng.normal(size=(2, 40)), rng.normal(size=12)
    ours, theirs = X @ truth + 2 * noise[0], X @ truth + 2 * noise[1]
    hessian = X.T @ X + (weights["l2"] + weights["pull/up"]) * np.eye(12)
    params = np.linalg.solve(hessian, X.T @ ours + 0.3 * weights["pull/up"])
    residual, other = X @ params - ours, X @ params - theirs
    jacobian = np.column_stack([2 * params, 2 * (params - 0.3), weights["logloss"] * 2 * X.T @ residual])
    features = [params @ params, np.sum((params - 0.3) ** 2), residual @ residual]
    return Observation.from_gradients(float(other @ other), features, 2 * X.T @ other, jacobian)


def meet(folder):
    """Wait until four trials have come to a folder, so that they run at the same time; the first of them fails."""
    folder.mkdir(exist_ok=True)
    mine = folder / f"{time.time_ns()}-{os.getpid()}"
    mine.touch()
    deadline = time.monotonic() + 60
    while len(present := sorted(folder.iterdir())) < AT_ONCE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if mine == present[0]:
        raise RuntimeError("this one fails")


def trial(config):
    """Train and report."""
    import ray
    from ray import tune

    from tuneloss.integrations.ray import reported

    began = time.time()
    if config["meeting"]:
        meet(Path(config["meeting"]))
    time.sleep(0.5)
    node = ray.get_runtime_context().get_node_id()
    tune.report(reported(train(config["weights"]), node=node, began=began, ended=time.time()))


def new_tuner(folder, meeting=""):
    """A tuner of trials with a rate, four at once, and a journal in the folder."""
    from ray import tune

    from tuneloss.integrations.ray import TuneLossSearch

    return tune.Tuner(
        trial,
        param_space={"model": {"rate": tune.loguniform(1e-4, 1.0)}, "meeting": meeting},
        tune_config=tune.TuneConfig(
            search_alg=TuneLossSearch(BOX, seed=0, journal=f"{folder}/runs.jsonl"),
            num_samples=N_TRIALS,
            max_concurrent_trials=AT_ONCE,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="search", storage_path=str(folder), verbose=0),
    )


if __name__ == "__main__":
    import ray

    ray.init(address=sys.argv[1], log_to_driver=False)
    new_tuner(sys.argv[2]).fit()
