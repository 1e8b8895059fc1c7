"""Tuned runs of the trainer in one of several processes that torchrun started, for `test_transformers.py`.

Each process writes what it saw to ``<rank>.json`` in the folder that it is given.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.tensor import DTensor

from tests.integrations.hugging_face import arguments, bert, labelled, make_loss
from tuneloss.integrations.transformers import TuneLossTrainer

BATCH = 8  # of one process
CHECKPOINT = "checkpoint-6"  # after the first epoch: 96 examples, 16 in a step


class Sharded(TuneLossTrainer):
    """A trainer under FSDP2. Accelerate ignores FSDP without GPUs, so what it would set on them is set here."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        settings = self.accelerator.state._shared_state
        settings["fsdp_plugin"] = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
        settings["distributed_type"] = DistributedType.FSDP
        self.is_fsdp_enabled = True


def tuned_run(
    folder: Path, batch: int, resume: str | None = None, *, kind: Any = TuneLossTrainer, **changes: Any
) -> dict[str, Any]:
    """Weights, logs and parameters after a run."""
    plain = {"num_train_epochs": 3, "optim": "sgd", "learning_rate": 0.1, "per_device_train_batch_size": batch}
    data = {"train_dataset": labelled(96, 1), "eval_dataset": labelled(64, 2)}
    trainer = kind(bert(), arguments(folder, **plain, **changes), **data, loss=make_loss())
    trainer.train(resume_from_checkpoint=resume)
    params = list(trainer.model.parameters())
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in params]
    return {
        "weights": trainer.loss.as_dict(),
        "errors": [record.error for record in trainer.tuner.history],
        "params": torch.cat([p.detach().flatten() for p in whole]).tolist(),
        "sharded": any(isinstance(p, DTensor) for p in params),
        "terms": [log["loss/fit"] for log in trainer.state.log_history if "loss/fit" in log],
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    seen = {
        "ddp": tuned_run(folder / "ddp", BATCH, save_strategy="epoch"),
        "resumed": tuned_run(folder / "ddp", BATCH, str(folder / "ddp" / CHECKPOINT), save_strategy="epoch"),
        "fsdp2": tuned_run(folder / "fsdp2", BATCH, kind=Sharded),
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
