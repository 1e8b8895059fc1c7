"""Small problems for the door to Hugging Face: tiny models with random weights, data sets, and plain training loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainingArguments,
    set_seed,
)

from tuneloss import Box
from tuneloss.torch import L2, LinearLoss, PerSource, UniformLabels

BATCH, LEARNING_RATE = 16, 2e-3


class Examples(Dataset):
    """Examples that are dicts of tensors."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.items[i]


def labelled(n: int, seed: int) -> Examples:
    """Rows of 8 tokens; the label says whether there are many small ones, with a fifth of the labels flipped."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, 60, (n, 8), generator=g)
    labels = ((tokens < 25).sum(1) > 2).long()
    labels = torch.where(torch.rand(n, generator=g) < 0.2, 1 - labels, labels)
    return Examples([{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)])


def texts(n: int, seed: int, noise: float = 0.0) -> Examples:
    """Counting sequences (domain 0) and random ones (domain 1) of 4 to 12 tokens, padded to 12."""
    g = torch.Generator().manual_seed(seed)
    items = []
    for _ in range(n):
        length, domain = int(torch.randint(4, 13, (1,), generator=g)), int(torch.rand(1, generator=g) < noise)
        first = int(torch.randint(3, 60, (1,), generator=g))
        counted, random = (first + torch.arange(12)) % 57 + 3, torch.randint(3, 60, (12,), generator=g)
        mask = torch.arange(12) < length
        tokens = torch.where(mask, random if domain else counted, 0)
        labels = torch.where(mask, tokens, -100)
        items.append({"input_ids": tokens, "attention_mask": mask.long(), "labels": labels, "domain": domain})
    return Examples(items)


def without_domain(examples: Examples) -> Examples:
    return Examples([{name: x for name, x in item.items() if name != "domain"} for item in examples.items])


def bert(dropout: float = 0.0) -> nn.Module:
    set_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    off = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **size, **off))


def gpt() -> nn.Module:
    set_seed(0)
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, **off))


def fit(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The model's own loss."""
    return model(**batch).loss


def make_loss(**box: Any) -> LinearLoss:
    terms = {"fit": fit, "smooth": UniformLabels(lambda model, batch: model(**batch).logits), "l2": L2()}
    return LinearLoss(terms, box={"fit": 1.0, "smooth": (0, 1), "l2": (0, 0.1)} | box)


def of_rows(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The log loss of the next token, the mean over the tokens of each row (N,)."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return losses.sum(1) / (labels != -100).sum(1)


def mixture() -> LinearLoss:
    domains = ["counting", "noise"]
    return LinearLoss([PerSource(domains, of_rows, key="domain")], box=Box.simplex(domains))


def arguments(folder: Path | str, **changes: Any) -> TrainingArguments:
    plain = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": 32,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 4,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "optim": "adamw_torch",
        "data_seed": 0,  # the order of batches, which would follow the last `manual_seed`
    }
    return TrainingArguments(output_dir=str(folder), **plain | changes)


def plain_loop(
    model: nn.Module,
    value: Callable[[nn.Module, dict[str, Tensor]], Tensor],
    epochs: Sequence[Any],
    after_epoch: Callable[[], object] = lambda: None,
    *,
    sgd: float | None = None,
) -> list[float]:
    """Train as anyone would in plain PyTorch, on one iterable of batches per epoch; return the losses.

    The optimizer is AdamW, or SGD with a learning rate.
    """
    params = list(model.parameters())
    optimizer = (
        torch.optim.AdamW(params, lr=LEARNING_RATE, weight_decay=0.0) if sgd is None else torch.optim.SGD(params, sgd)
    )
    losses = []
    model.train()
    for batches in epochs:
        for batch in batches:
            loss = value(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        after_epoch()
    return losses


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    """The largest difference of two models' parameters."""
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))
