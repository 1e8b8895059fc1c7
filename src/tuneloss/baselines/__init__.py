"""Other ways to choose the weights of a loss, with the same ask and tell as `LossTuner`."""
