"""tuneloss learns the weights of a training loss from a few trained models, or inside one training run."""

from tuneloss.core.box import Box
from tuneloss.core.learn import LearnedLoss, learn_loss, learn_loss_on_folds
from tuneloss.core.observation import Observation
from tuneloss.tuning.ask_tell import LossTuner

__all__ = ["Box", "LearnedLoss", "LossTuner", "Observation", "learn_loss", "learn_loss_on_folds"]
__version__ = "0.1.0"
