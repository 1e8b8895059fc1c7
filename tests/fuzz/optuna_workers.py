"""Let several processes share an Optuna study, again and again; no two trials may train with the same learned weights.

    python -m tests.fuzz.optuna_workers --repeats 20 --seed 0

Each study has 4 workers, which make 60 trials in all on one storage. Trials take about 10 ms, so that many of them
begin together. The line of a storage and sampler says how many trials were complete, how many had learned weights that
another trial had too, how many learned weights there were, and the seconds per study.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import optuna

from tuneloss import Box, Observation
from tuneloss.integrations.optuna import KEY, TuneLossSampler
from tuneloss.tuning.sampling import same_point

BOX = Box.from_dict({"l2": (0.01, 1000.0), "smooth": (0.01, 1000.0), "fit": 1.0})
FREE = ("l2", "smooth")
N_WORKERS, N_TRIALS = 4, 60  # of a study
PAUSE = 0.01  # seconds that a trial takes, on average
DIMENSION = 20


def train(weights: dict[str, float]) -> Observation:
    """Fit a smooth curve to noisy points; exact, with gradients."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(60, DIMENSION)), rng.normal(size=(2, 60))
    truth, D = np.sin(np.arange(DIMENSION) / 3), np.diff(np.eye(DIMENSION), axis=0)
    ours, theirs = X @ truth + 2 * noise[0], X @ truth + 2 * noise[1]
    hessian = X.T @ X + weights["l2"] * np.eye(DIMENSION) + weights["smooth"] * D.T @ D
    params = np.linalg.solve(hessian, X.T @ ours)
    fit, other = X @ params - ours, X @ params - theirs
    jacobian = np.column_stack([2 * params, 2 * D.T @ D @ params, 2 * X.T @ fit])
    features = {"l2": params @ params, "smooth": np.sum((D @ params) ** 2), "fit": fit @ fit}
    return Observation.from_gradients(float(other @ other), features, 2 * X.T @ other, jacobian)


def storage_at(kind: str, place: str) -> optuna.storages.BaseStorage:
    """Return a storage: an SQLite file, a journal file, or the database of a URL."""
    if kind == "journal":
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(place))
    return optuna.storages.RDBStorage(place if kind == "url" else f"sqlite:///{place}")


def work(kind: str, place: str, name: str, has_fallback: bool, seed: int) -> None:
    """Make trials until the study has enough of them."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    fallback = optuna.samplers.TPESampler(seed=seed) if has_fallback else None
    sampler = TuneLossSampler(BOX, fallback=fallback, seed=seed)
    study = optuna.load_study(study_name=name, storage=storage_at(kind, place), sampler=sampler)
    rng = np.random.default_rng(seed)

    def objective(trial: optuna.Trial) -> float:
        weights = {name: trial.suggest_float(name, 0.01, 1000.0, log=True) for name in FREE}
        time.sleep(rng.exponential(PAUSE))
        seen = train({**weights, "fit": 1.0})
        trial.set_user_attr(KEY, seen.to_dict())
        return seen.error

    study.optimize(objective, n_trials=N_TRIALS // N_WORKERS)


def repeated(study: optuna.Study) -> tuple[int, int]:
    """Return how many learned weights another trial had too, and how many learned weights there are."""
    points = [(np.array([t.params[name] for name in FREE]), t.system_attrs.get(KEY) is not None) for t in study.trials]
    learned = sum(is_learned for _, is_learned in points)
    pairs = itertools.combinations(points, 2)
    return sum((a or b) and same_point(one, other) for (one, a), (other, b) in pairs), learned


def one_study(kind: str, place: str, name: str, has_fallback: bool, seed: int) -> tuple[int, int, int, float]:
    """Run a study; return its complete trials, repeated weights, learned weights and seconds."""
    optuna.create_study(study_name=name, storage=storage_at(kind, place))
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=work, args=(kind, place, name, has_fallback, N_WORKERS * seed + number))
        for number in range(N_WORKERS)
    ]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - began
    study = optuna.load_study(study_name=name, storage=storage_at(kind, place))
    complete = sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)
    return complete, *repeated(study), seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--url", default="", help="try the database of this URL, not files")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    places = {"url": options.url} if options.url else {"journal": "study.log", "sqlite": "study.db"}
    n_repeated = 0
    for kind, has_fallback in itertools.product(places, (True, False)):
        totals = np.zeros(4)
        for number in range(options.seed, options.seed + options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                place = options.url if kind == "url" else str(Path(folder) / places[kind])
                totals += one_study(kind, place, f"study-{has_fallback}-{number}", has_fallback, number)
        n_repeated += int(totals[1])
        sampler = "with a fallback" if has_fallback else "without a fallback"
        print(
            f"{kind:7} {sampler:18}: {totals[0]:.0f} of {options.repeats * N_TRIALS} trials complete, "
            f"{totals[1]:.0f} repeated of {totals[2]:.0f} learned weights, "
            f"{totals[3] / options.repeats:.1f} s per study",
            flush=True,
        )
    return 1 if n_repeated else 0


if __name__ == "__main__":
    raise SystemExit(main())
