"""Our GP-EI-MCMC against BoTorch's fully Bayesian GP on the same data: posterior, expected improvement, seconds.

python benchmarks/gp_ei_mcmc.py      needs `pip install botorch numpyro` beside tuneloss; reads results/table1.jsonl

Data: validation log losses of 19 training runs, those of random search and of TPE in one repeat. Twice:
BoTorch with our priors, where both must agree up to the noise of two samplers (slice sampling, NUTS), and with its own
priors, to see how much they matter.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_fully_bayesian_model_nuts
from botorch.models.fully_bayesian import FullyBayesianSingleTaskGP, MaternPyroModel
from scipy.stats import qmc, spearmanr

from tuneloss import Box
from tuneloss.baselines.gp import LONGEST, NOISE_SCALE, log_posterior, slice_sample
from tuneloss.baselines.search import Cube
from tuneloss.tuning.gaussian_process import Posterior, expected_improvement

numpyro.enable_x64()
RECORDS = Path(__file__).resolve().parents[1] / "results" / "table1.jsonl"
POINTS, SAMPLES = 512, 256
RANGES = {"l1": (0.1, 100), "l2": (0.1, 100), "uniform": (0, 0.1), "dropout": (0, 1), "logloss": 1.0}


class OurPriors(MaternPyroModel):
    """BoTorch's model with the priors of tuneloss.baselines.gp."""

    def sample_mean(self):
        return numpyro.sample("mean", dist.Uniform(self.train_Y_jax.min(), self.train_Y_jax.max()))

    def sample_noise(self):
        log_noise = numpyro.sample("log_noise", dist.Uniform(-30.0, 30.0))
        numpyro.factor("horseshoe", jnp.log(jnp.log1p((NOISE_SCALE / jnp.exp(log_noise)) ** 2)) + log_noise)
        return numpyro.deterministic("noise", jnp.exp(log_noise))

    def sample_lengthscale(self, dim):
        return numpyro.sample("lengthscale", dist.Uniform(jnp.zeros(dim), jnp.full(dim, LONGEST)))

    def sample_outputscale(self, concentration=None, rate=None):
        log_amplitude = numpyro.sample("log_amplitude", dist.Normal(0.0, 1.0))
        return numpyro.deterministic("outputscale", jnp.exp(2 * log_amplitude))


class WithOurPriors(FullyBayesianSingleTaskGP):
    _pyro_model_class = OurPriors


def data(dataset: str, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit cube (19, 4) and standardised errors (19,)."""
    with RECORDS.open() as lines:
        records = [json.loads(line) for line in lines]
    own = [r for r in records if r["dataset"] == dataset and r["repeat"] == repeat and r["tuner"] in ("random", "tpe")]
    box = Box.from_dict(RANGES)
    points = {tuple(box.as_array(r["weights"])): r["validation_loss"] for r in own}  # the first one is shared
    errors = np.array(list(points.values()))
    return Cube(box).to_cube(np.array(list(points))), (errors - errors.mean()) / errors.std()


def ours(x: np.ndarray, y: np.ndarray, at: np.ndarray, sweeps: int, seed: int) -> tuple[np.ndarray, ...]:
    """Mean, deviation and expected improvement at points, by slice sampling."""
    start = np.array([0.0, 0.0, -4.0, *np.full(x.shape[1], 0.5)])
    chain = slice_sample(log_posterior(x, y), start, sweeps + 100, np.random.default_rng(seed))[100:]
    posteriors = [Posterior.of(x, y, theta) for theta in chain[:: max(1, sweeps // SAMPLES)]]
    means, variances = map(np.array, zip(*(p.mean_and_variance(at) for p in posteriors), strict=True))
    deviation = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    return means.mean(axis=0), deviation, expected_improvement(posteriors, float(y.min()), at)


def botorchs(kind, x: np.ndarray, y: np.ndarray, at: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, ...]:
    """The same by BoTorch, NUTS."""
    model = kind(torch.tensor(x), torch.tensor(y).unsqueeze(1))
    fit_fully_bayesian_model_nuts(model, num_samples=samples, thinning=1, disable_progbar=True, seed=seed)
    points = torch.tensor(at)
    with torch.no_grad():
        posterior = model.posterior(points)
        mean = posterior.mixture_mean.squeeze(-1).numpy()
        deviation = posterior.mixture_variance.squeeze(-1).sqrt().numpy()
        logs = LogExpectedImprovement(model, best_f=float(y.min()), maximize=False)(points.unsqueeze(1))
        improvement = logs.exp().numpy()  # the log of the mean over samples is what is given
    return mean, deviation, improvement


def timed(function, *arguments) -> tuple[float, tuple[np.ndarray, ...]]:
    began = time.perf_counter()
    found = function(*arguments)
    return time.perf_counter() - began, found


def compare(name: str, mine: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> None:
    mean, deviation, improvement = other
    gap_mean, gap_deviation = np.abs(mine[0] - mean).max(), np.abs(np.log(mine[1] / deviation)).max()
    best = improvement[mine[2].argmax()] / improvement.max()
    print(f"  {name:42} {gap_mean:.3f}   {gap_deviation:.3f}   {spearmanr(mine[2], improvement)[0]:.3f}   {best:.2f}")


def main() -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    print(
        f"At {POINTS} Sobol points; errors have standard deviation 1. Columns: largest difference of posterior means,"
    )
    print(
        "and of log deviations; rank correlation of expected improvement; and the expected improvement that the other"
    )
    print("sees at our best point, as a part of its greatest.")
    for dataset, repeat in (("tf_flowers", 0), ("tf_flowers", 1), ("nct_crc_he_3class", 0)):
        x, y = data(dataset, repeat)
        at = qmc.Sobol(x.shape[1], seed=1).random(POINTS)
        long_seconds, long = timed(ours, x, y, at, 4000, 0)
        again = ours(x, y, at, 4000, 1)
        short_seconds, short = timed(ours, x, y, at, 10, 0)  # as many as a proposal takes
        seconds, same = timed(botorchs, WithOurPriors, x, y, at, SAMPLES, 0)
        _, own = timed(botorchs, FullyBayesianSingleTaskGP, x, y, at, SAMPLES, 0)
        print(f"\n{dataset}, repeat {repeat}, {len(y)} runs: ours, 4000 sweeps ({long_seconds:.1f} s), against")
        compare("ours, another seed", long, again)
        compare(f"BoTorch, our priors, {SAMPLES} samples ({seconds:.1f} s)", long, same)
        compare("BoTorch, its own priors", long, own)
        compare(f"ours, 10 sweeps after 100 ({short_seconds:.1f} s)", long, short)


if __name__ == "__main__":
    main()
