"""One thread: the models here are so small that more of them only wait for each other."""

import torch

torch.set_num_threads(1)
