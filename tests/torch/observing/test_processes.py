"""One observation from one process, from two under DDP, and from two under FSDP2: the same, and by real processes.

Two processes are started once; each plays every scene below and sends back what it saw. They read different data, in
batches of unequal size. All is in float64, so that what differs differs by rounding only. messages.py and fsdp.py are
tested here too, since they need processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tuneloss import Observation
from tuneloss.torch import L1, L2, ConvexPiecewiseLinear, LinearLoss, OnlineTuner, PerSource, UniformLabels, observe
from tuneloss.torch.observing.fsdp import gradient_divisors, sharded_gradient
from tuneloss.torch.observing.messages import in_step, sum_over
from tuneloss.torch.observing.processes import Alone, processes_of
from tuneloss.torch.sources import MixtureLoader, SourceLoader, TargetMix
from tuneloss.torch.terms.data_terms import cross_entropy
from tuneloss.torch.terms.penalties import GroupPenalty
from tuneloss.torch.wrappers import bare, local, reshard

RANKS = (0, 1)
TRAIN = ((5, 3), (4, 8))  # sizes of the batches that each process reads
VALIDATION = ((6, 2), (3, 7))
K = 9  # weights of the loss below


class Net(nn.Module):
    """Parameters of the root, of a sharded block, tied, frozen, and never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(7, 3)
        self.block = nn.Sequential(nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 7))
        self.block[2].weight = self.block[0].weight
        self.shift, self.unused = nn.Parameter(torch.randn(3)), nn.Linear(2, 2)
        self.last.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.block(self.first(x).tanh())) + self.shift


class WithTable(Net):
    """An embedding of the sign of the first input, which its forward shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 3, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.table((x[:, 0] > 0).long())


def with_table() -> Net:
    torch.manual_seed(0)
    return WithTable().double()


def make_net() -> Net:
    torch.manual_seed(0)
    return Net().double()


def make_loss() -> LinearLoss:
    terms = {
        "logloss": cross_entropy,
        "uniform": UniformLabels(),
        "l1": L1("first.*"),
        "l2": L2(groups={"block": "block.*", "rest": ["first.*", "last.*"]}),
        "learned": ConvexPiecewiseLinear(knots=[-0.1, 0.05]),
    }
    loss = LinearLoss(terms, box={"logloss": 1.0, "uniform": (0, 1), "l1": (0, 1), "l2": (0, 1), "learned": (0, 1)})
    return loss.double()


def make_batches(sizes: tuple[int, ...], seed: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 6, dtype=torch.float64, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in sizes
    ]


def data_of(rank: int) -> tuple[Any, Any]:
    return make_batches(TRAIN[rank], rank), make_batches(VALIDATION[rank], 10 + rank)


def wrong_rate(model: Any, batch: Any) -> Tensor:
    return (model(batch[0]).argmax(1) != batch[1]).double().mean()


def look(model: nn.Module, data: tuple[Any, Any], **settings: Any) -> Observation:
    return observe(model, make_loss(), cross_entropy, *data, metric=wrong_rate, **settings)


def sharded(net: Net | None = None, **settings: Any) -> Net:
    net = make_net() if net is None else net
    fully_shard(net.block, **settings)
    fully_shard(net, **settings)
    return net


# --- Scenes: functions of the rank, played by both processes at the same time ---


def ddp(rank: int) -> Observation:
    return look(DistributedDataParallel(make_net()), data_of(rank))


def ddp_of_chosen_parameters(rank: int) -> Observation:
    return look(DistributedDataParallel(make_net()), data_of(rank), params="block.*")


def ddp_with_unequal_counts(rank: int) -> Observation:
    train, validation = data_of(rank)
    return look(DistributedDataParallel(make_net()), (train[: 2 - rank], validation[: 1 + rank]))


def ddp_of_some_batches(rank: int) -> Observation:
    return look(DistributedDataParallel(make_net()), data_of(rank), batches=1)


def ddp_where_one_reads_all(rank: int) -> Observation:
    train, validation = data_of(rank)
    return look(DistributedDataParallel(make_net()), (train if rank else train[:1], validation), batches=1)


def fsdp_of_unequal_parts(rank: int) -> Observation:
    return look(sharded(), (unequal(rank), data_of(rank)[1]), batches=4)


def unequal(rank: int) -> list[tuple[Tensor, Tensor]]:
    """Eight batches, as large as each other in one process, and not in the other."""
    return make_batches((4,) * 8 if rank else (12, 1, 1, 2) * 2, 20 + rank)


def ddp_with_other_buffers_here(rank: int) -> Observation:
    return look(apart(DistributedDataParallel(with_batch_norm()), rank), data_of(rank))


def ddp_goes_on(rank: int) -> bool:
    """Whether parameters, `.grad` and buffers are the same tensors with the same values, and DDP can be trained on."""
    model = DistributedDataParallel(with_batch_norm(), find_unused_parameters=True)
    train, validation = data_of(rank)
    for _ in range(2):
        cross_entropy(model, train[0]).backward()
        same = unchanged(apart(model, rank))
        look(model, (train, validation))
        if not same():
            return False
    return True


def fsdp(rank: int) -> Observation:
    return look(sharded(), data_of(rank))


def fsdp_of_chosen_parameters(rank: int) -> Observation:
    return look(sharded(), data_of(rank), params="block.*")


def fsdp_of_some_batches(rank: int) -> Observation:
    return look(sharded(), data_of(rank), batches=1, validation_batches=1)


def fsdp_with_other_buffers_here(rank: int) -> Observation:
    return look(apart(sharded(with_batch_norm()), rank), data_of(rank))


def fsdp_still_gathered(rank: int) -> Observation:
    """After a forward without a backward the parameters of the root are whole."""
    model = sharded(reshard_after_forward=False)
    train, validation = data_of(rank)
    with torch.no_grad():
        model(train[0][0])
    return look(model, (train, validation))


def fsdp_with_its_own_divisors(rank: int) -> Observation:
    model = sharded()
    model.set_gradient_divide_factor(3.0)
    model.block.set_gradient_divide_factor(1.0)
    return look(model, data_of(rank))


def fsdp_goes_on(rank: int) -> bool:
    """As `ddp_goes_on`, of all parameters if some are chosen; and hooks on `.grad` are called in training only."""
    model = sharded(with_batch_norm())
    train, validation = data_of(rank)
    cross_entropy(model, train[0]).backward()
    called: list[Tensor] = []
    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(called.append)
    same = unchanged(apart(model, rank))
    look(model, (train, validation), params="block.*")
    if not same() or called:
        return False
    cross_entropy(model, train[0]).backward()
    return len(called) > 0


def fsdp_steps_on(rank: int) -> float:
    """How far a forward after an observation and a step is from that of an equal model without the observation."""
    outputs = []
    train, validation = data_of(rank)
    for observed in (True, False):
        model = sharded()
        model.set_reshard_after_backward(False)
        params = list(model.parameters())  # as an optimizer has them
        if observed:
            look(model, (train, validation))
        with torch.no_grad():
            for p in params:
                p.add_(1.0)
            outputs.append(model(train[0][0]))
    return float((outputs[0] - outputs[1]).abs().max())


def fsdp_traffic(rank: int) -> int:
    """How many numbers an observation sends besides those of FSDP2."""
    model, sent = sharded(), []
    send = dist.all_reduce

    def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        sent.append(tensor.numel())
        return send(tensor, *args, **kwargs)

    with mock.patch.object(dist, "all_reduce", counted):
        look(model, data_of(rank))
    return sum(sent)


def fsdp_trains_with_penalties(rank: int) -> float:
    """The largest error of a gradient of a loss with penalties, after a validation without gradients."""
    model, reference, loss = sharded(reshard_after_forward=False), make_net(), make_loss()
    loss.set_weights([1.0, 0.25, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    x, y = make_batches((8,), 0)[0]
    params = dict(model.named_parameters())
    for _ in range(2):
        model.zero_grad()
        with torch.no_grad():
            model(x)
        loss(model, (x[rank::2], y[rank::2])).backward()
    loss(reference, (x, y)).backward()
    return max(
        float((params[name].grad.full_tensor() - p.grad).abs().max())
        for name, p in reference.named_parameters()
        if p.grad is not None
    )


def sums(rank: int) -> list[list[float]]:
    tensors = [
        torch.full((3, 2), 1.0 + rank),
        torch.ones(2, dtype=torch.float64),
        torch.full((4, 3), 5.0).T,
        torch.tensor(2**60 + rank),
    ]
    sum_over(tensors, dist.group.WORLD)
    return [tensor.flatten().tolist() for tensor in tensors]


def steps(rank: int) -> list[list[int]]:
    return [list(in_step(range(n), dist.group.WORLD)) for n in (0, 3)]


def one_forward_many_terms(rank: int) -> float:
    """The largest error of gradients of three terms of one forward; the second touches a part of the model only."""
    model, reference = sharded(), make_net()
    batches = [make_batches(TRAIN[r], r)[0] for r in RANKS]
    params = [p for p in model.parameters() if p.requires_grad]
    divisors = gradient_divisors(model, params)

    def terms(net: Net, x: Tensor, y: Tensor) -> list[Tensor]:
        output = net(x)
        return [
            len(y) * nn.functional.cross_entropy(output, y),
            net.shift.new_ones(3) @ output.sum(0),
            output.square().sum(),
        ]

    found = [sharded_gradient(value, params, divisors, retain_graph=True) for value in terms(model, *batches[rank])]
    reshard(model)
    theirs = [p for p in reference.parameters() if p.requires_grad]
    worst = 0.0
    for mine, values in zip(found, zip(*(terms(reference, *batch) for batch in batches), strict=True), strict=True):
        right = torch.autograd.grad(sum(values, torch.zeros(())), theirs, allow_unused=True, retain_graph=True)
        for param, part, whole in zip(params, mine, right, strict=True):
            assert (part is None) == (whole is None)
            if part is not None and whole is not None:
                worst = max(worst, float((part - shard_of(whole, rank)).abs().max()) if part.numel() else 0.0)
                assert part.shape == local(param).shape
    return worst


# Scenes that must end in an error, in both processes


def fsdp_with_fewer_batches_here(rank: int) -> None:
    train, validation = data_of(rank)
    look(sharded(), (train[: 2 - rank], validation))


def fsdp_with_fewer_validation_batches_here(rank: int) -> None:
    train, validation = data_of(rank)
    look(sharded(), (train, iterable(validation[: 1 + rank])))


def fsdp_with_no_batches_here(rank: int) -> None:
    train, validation = data_of(rank)
    look(sharded(), (train if rank else [], validation))


def fsdp_with_a_broken_loader_here(rank: int) -> None:
    def broken() -> Iterator[Any]:
        yield data_of(rank)[0][0]
        if rank == 0:
            raise OSError("disk on fire")
        yield data_of(rank)[0][1]

    list(in_step(broken(), dist.group.WORLD))


def fsdp_with_nan_here(rank: int) -> None:
    look(sharded(), with_nan(data_of(rank), rank))


def ddp_with_nan_here(rank: int) -> None:
    look(DistributedDataParallel(make_net()), with_nan(data_of(rank), rank))


def ddp_with_no_batches_here(rank: int) -> None:
    train, validation = data_of(rank)
    look(DistributedDataParallel(make_net()), (train if rank else [], validation))


def fsdp_of_a_part(rank: int) -> None:
    net = make_net()
    look(sharded(net, ignored_params={net.shift}), data_of(rank))


def fsdp_without_synchronization(rank: int) -> None:
    model = sharded()
    model.set_requires_gradient_sync(False)
    cross_entropy(model, data_of(rank)[0][0]).backward()
    model.set_requires_gradient_sync(True)
    look(model, data_of(rank))


def hybrid_shards(rank: int) -> None:
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    look(sharded(mesh=mesh), data_of(rank))


def tensor_parallel(rank: int) -> None:
    net = nn.Sequential(nn.Linear(6, 4))
    processes_of(parallelize_module(net, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel()}))


def ddp_around_a_part(rank: int) -> None:
    net = make_net()
    net.block = DistributedDataParallel(net.block)
    look(net, data_of(rank))


def ddp_with_a_table(rank: int) -> Observation:
    model = DistributedDataParallel(with_table())
    same = unchanged(model)
    found = look(model, data_of(rank))
    assert same()
    return found


def fsdp_with_a_table(rank: int) -> Observation:
    model = sharded(with_table())
    same = unchanged(model)
    found = look(model, data_of(rank))
    assert same()
    return found


def ddp_of_the_model_inside(rank: int) -> None:
    look(DistributedDataParallel(make_net()).module, data_of(rank))


def a_model_of_its_own(rank: int) -> Observation:
    """As the message about a plain model advises."""
    alone = dist.new_group([rank], use_local_synchronization=True)
    return look(DistributedDataParallel(make_net(), process_group=alone), data_of(rank))


def of_sources(model: nn.Module, parts: Sequence[int], **settings: Any) -> Observation:
    """Three sources whose numbers are in a column. The first part has no rows of the last source."""
    batches = []
    for part in parts:
        (x, y), *_ = make_batches((9,), 20 + part)
        batches.append((x, y, torch.arange(9) % (2 + part)))
    names = ["a", "b", "c"]
    loss = LinearLoss(
        [PerSource(names, cross_entropy, key=2), L2("first.*")], {"a": 0.5, "b": (0, 1), "c": (0, 1), "l2": (0, 1)}
    )
    data = [make_batches(VALIDATION[part], 10 + part) for part in parts]
    mix = TargetMix({"one": [first for first, _ in data], "two": [second for _, second in data]}, {"one": 3, "two": 1})
    return observe(model, loss.double(), cross_entropy, batches, mix, **settings)


def ddp_of_sources(rank: int) -> Observation:
    return of_sources(DistributedDataParallel(make_net()), [rank])


def fsdp_of_sources(rank: int) -> None:
    of_sources(sharded(), [rank])


def of_a_loader_of_sources(model: nn.Module, parts: Sequence[int]) -> Observation:
    """Two sources, both in all batches, but of other sizes in each part."""
    sources = [{"a": make_batches((4 + r, 3), r), "b": make_batches((2, 5 - r), 30 + r)} for r in parts]
    train = SourceLoader({name: [batch for part in sources for batch in part[name]] for name in ("a", "b")})
    validation = [batch for r in parts for batch in data_of(r)[1]]
    loss = LinearLoss([PerSource(train, cross_entropy)], {"a": 1.0, "b": (0, 1)}).double()
    return observe(model, loss, cross_entropy, train, validation, merge=False)


def fsdp_of_a_loader_of_sources(rank: int) -> Observation:
    return of_a_loader_of_sources(sharded(), [rank])


def ddp_of_sources_of_unequal_length(rank: int) -> Observation:
    """One process reads all of its first source, the other only a part."""
    parts = {"a": make_batches((4,) * (2 + rank), rank), "b": make_batches((3, 3), 30 + rank)}
    loss = LinearLoss([PerSource(["a", "b"], cross_entropy)], {"a": 1.0, "b": (0, 1)}).double()
    train = SourceLoader(parts, length=2)
    return observe(DistributedDataParallel(make_net()), loss, cross_entropy, train, data_of(rank)[1], merge=False)


def due(model: nn.Module) -> int:
    """The next call that observes, where all processes have the same data."""
    train, validation = data_of(0)
    tuner = OnlineTuner(model, make_loss(), cross_entropy, train, validation, cost=0.1)
    tuner.step()
    return tuner.state_dict()["due"]


def ddp_at_a_cost(rank: int) -> int:
    return due(DistributedDataParallel(make_net()))


def mixture(rank: int) -> list[list[int]]:
    loader = MixtureLoader({"a": torch.arange(60), "b": torch.arange(100, 120)}, {"a": 3, "b": 1}, batch_size=4)
    return [batch.tolist() for batch in islice(loader, 10)]


class Norm(GroupPenalty):
    """Its value on a shard says nothing of its value on the whole."""

    def value(self, x: Tensor) -> Tensor:
        return x.norm()


class Entrywise(GroupPenalty):
    """A sum over shards is a sum over entries."""

    entrywise = True

    def value(self, x: Tensor) -> Tensor:
        return x.pow(4).sum()


def with_own_penalty(penalty: GroupPenalty) -> LinearLoss:
    return LinearLoss({"logloss": cross_entropy, "own": penalty}, {"logloss": 1.0, "own": (0.1, 1)}).double()


def ddp_with_own_penalty(rank: int) -> Observation:
    return observe(
        DistributedDataParallel(make_net()), with_own_penalty(Norm()), cross_entropy, *data_of(rank), metric=wrong_rate
    )


def fsdp_with_own_entrywise_penalty(rank: int) -> Observation:
    return observe(sharded(), with_own_penalty(Entrywise()), cross_entropy, *data_of(rank), metric=wrong_rate)


def fsdp_with_own_penalty(rank: int) -> None:
    observe(sharded(), with_own_penalty(Norm()), cross_entropy, *data_of(rank))


def fsdp_trains_with_own_penalty(rank: int) -> None:
    with_own_penalty(Norm())(sharded(), data_of(rank)[0][0])


SCENES = [
    ddp, ddp_of_chosen_parameters, ddp_of_some_batches, ddp_with_unequal_counts, ddp_with_other_buffers_here,
    ddp_goes_on, ddp_where_one_reads_all, fsdp_of_unequal_parts,
    fsdp, fsdp_of_chosen_parameters, fsdp_of_some_batches, fsdp_still_gathered, fsdp_with_its_own_divisors,
    fsdp_with_other_buffers_here, fsdp_goes_on, fsdp_steps_on, fsdp_traffic,
    sums, steps, one_forward_many_terms,
    fsdp_with_fewer_batches_here, fsdp_with_fewer_validation_batches_here, fsdp_with_no_batches_here,
    fsdp_with_a_broken_loader_here, fsdp_of_a_part, fsdp_without_synchronization, hybrid_shards, tensor_parallel,
    ddp_around_a_part, fsdp_trains_with_penalties, fsdp_with_nan_here, ddp_with_nan_here, ddp_with_no_batches_here,
    ddp_with_a_table, fsdp_with_a_table, ddp_of_the_model_inside, a_model_of_its_own,
    ddp_of_sources, fsdp_of_sources, fsdp_of_a_loader_of_sources, mixture,
    ddp_of_sources_of_unequal_length, ddp_at_a_cost,
    ddp_with_own_penalty, fsdp_with_own_entrywise_penalty, fsdp_with_own_penalty, fsdp_trains_with_own_penalty,
]  # fmt: skip


# --- Helpers of scenes ---


class iterable:  # noqa: N801
    """A loader without a length."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def with_batch_norm() -> Net:
    """A net with a batch norm, which is in eval mode."""
    net = make_net()
    net.block.append(nn.BatchNorm1d(7).double().eval())
    return net


def apart(model: nn.Module, rank: int) -> nn.Module:
    """The same model, its batch norm with statistics that are other in each process, as after an epoch."""
    bare(model).block[3].running_mean += rank
    return model


def with_nan(data: tuple[Any, Any], rank: int) -> tuple[Any, Any]:
    """In the first process one number of the training data is not a number."""
    if rank == 0:
        data[0][1][0][0, 0] = torch.nan
    return data


def unchanged(model: nn.Module) -> Callable[[], bool]:
    """Remembers parameters, `.grad` and buffers: tells later if they are the same objects, with the same values."""

    def now() -> list[Tensor]:
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return [*model.parameters(), *grads, *model.buffers()]

    before = [(tensor, local(tensor).clone()) for tensor in now()]

    def same() -> bool:
        after = now()
        return len(after) == len(before) and all(
            found is tensor and torch.equal(local(found), value)
            for found, (tensor, value) in zip(after, before, strict=True)
        )

    return same


def shard_of(whole: Tensor, rank: int) -> Tensor:
    """What FSDP2 gives to one of two processes: rows, the first process taking one more."""
    rows = (len(whole) + 1) // 2
    return whole[rank * rows : (rank + 1) * rows]


# --- The two processes ---


def play(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=timedelta(seconds=30))
    for scene in SCENES:
        try:
            found = scene(rank)
        except Exception as error:  # the tests look at it
            found = f"{type(error).__name__}: {error}"
        torch.save(found, f"{folder}/{scene.__name__}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each of the two processes saw, by scene."""
    folder = tmp_path_factory.mktemp("processes")
    with suppress(torch.multiprocessing.ProcessExitedException, torch.multiprocessing.ProcessRaisedException):
        torch.multiprocessing.spawn(play, (str(folder),), nprocs=2)
    return {scene.__name__: [_load(folder / f"{scene.__name__}.{rank}") for rank in RANKS] for scene in SCENES}


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=False) if path.exists() else "the process ended before"


def alone(model: nn.Module | None = None, train: Any = None, validation: Any = None, **settings: Any) -> Observation:
    """The observation of one process that reads the data of both."""
    pairs = [data_of(rank) for rank in RANKS]
    every_train, every_validation = ([*pairs[0][i], *pairs[1][i]] for i in (0, 1))
    return look(
        make_net() if model is None else model, (train or every_train, validation or every_validation), **settings
    )


def assert_same(found: Any, right: Observation) -> None:
    assert isinstance(found, Observation), found
    assert found.names == right.names
    assert found.gram is not None
    assert right.gram is not None
    for name in ("error", "metric", "features", "gram"):
        np.testing.assert_allclose(getattr(found, name), getattr(right, name), rtol=1e-8, atol=1e-8, err_msg=name)


# --- The tests ---


@pytest.mark.parametrize("scene", ["ddp", "fsdp", "fsdp_still_gathered", "fsdp_with_its_own_divisors"])
def test_two_processes_see_what_one_process_sees(seen: dict[str, list[Any]], scene: str) -> None:
    for found in seen[scene]:
        assert_same(found, alone())


@pytest.mark.parametrize("scene", ["ddp_of_chosen_parameters", "fsdp_of_chosen_parameters"])
def test_the_gram_of_chosen_parameters_is_that_of_one_process(seen: dict[str, list[Any]], scene: str) -> None:
    for found in seen[scene]:
        assert_same(found, alone(params="block.*"))


@pytest.mark.parametrize(
    ("scene", "penalty"), [("ddp_with_own_penalty", Norm()), ("fsdp_with_own_entrywise_penalty", Entrywise())]
)
def test_a_penalty_of_ones_own_is_that_of_one_process(
    seen: dict[str, list[Any]], scene: str, penalty: GroupPenalty
) -> None:
    train, validation = ([batch for rank in RANKS for batch in data_of(rank)[i]] for i in (0, 1))
    right = observe(make_net(), with_own_penalty(penalty), cross_entropy, train, validation, metric=wrong_rate)
    for found in seen[scene]:
        assert_same(found, right)


def test_under_fsdp_a_number_of_batches_is_that_of_each_process(seen: dict[str, list[Any]]) -> None:
    """The first batch of both, for the terms and the error's gradient; all batches, for the error."""
    pairs = [data_of(rank) for rank in RANKS]
    first = alone(train=[pair[0][0] for pair in pairs], validation=[pair[1][0] for pair in pairs])
    whole = alone()
    for found in seen["fsdp_of_some_batches"]:
        assert_same(found, Observation(whole.error, first.features, first.gram, metric=whole.metric, names=first.names))


def test_under_ddp_the_noise_of_some_batches_is_taken_off_as_in_one_process(seen: dict[str, list[Any]]) -> None:
    """The first batch of each process, of all batches of both: two parts that are compared."""
    (train0, validation0), (train1, validation1) = (data_of(rank) for rank in RANKS)
    train = [train0[0], train1[0], *train0[1:], *train1[1:]]
    right = alone(train=train, validation=[*validation0, *validation1], batches=2, merge=False)
    plain = alone(train=train[:2], validation=[*validation0, *validation1])
    assert np.any(right.gram != plain.gram)
    for found in seen["ddp_of_some_batches"]:
        assert_same(found, right)


def test_under_ddp_a_process_that_reads_all_it_has_is_compared_too(seen: dict[str, list[Any]]) -> None:
    """One batch of one and one of two: two parts, of a share of 3/4. Less is taken off than of a share of 1/2."""
    (train0, validation0), (train1, validation1) = (data_of(rank) for rank in RANKS)
    validation = [*validation0, *validation1]
    half = alone(train=[train0[0], train1[0], *train0[1:], *train1[1:]], validation=validation, batches=2, merge=False)
    plain = alone(train=[train0[0], train1[0]], validation=validation)
    for found in seen["ddp_where_one_reads_all"]:
        assert isinstance(found, Observation)
        assert half.gram[:2, :2].trace() < found.gram[:2, :2].trace() < plain.gram[:2, :2].trace()


def test_under_fsdp_a_part_is_of_all_processes(seen: dict[str, list[Any]]) -> None:
    """Its size and its gradient are sums over them: as one process sees that reads the batches put together."""
    pairs = zip(unequal(0), unequal(1), strict=True)
    train = [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in pairs]
    validation = [batch for rank in RANKS for batch in data_of(rank)[1]]
    right = alone(train=train, validation=validation, batches=4, merge=False)
    for found in seen["fsdp_of_unequal_parts"]:
        assert_same(found, right)


def test_under_ddp_processes_may_read_unequally_many_batches(seen: dict[str, list[Any]]) -> None:
    (train0, validation0), (train1, validation1) = (data_of(rank) for rank in RANKS)
    right = alone(train=[*train0, train1[0]], validation=[validation0[0], *validation1])
    for found in seen["ddp_with_unequal_counts"]:
        assert_same(found, right)


@pytest.mark.parametrize("scene", ["ddp_with_a_table", "fsdp_with_a_table"])
def test_an_embedding_with_a_largest_norm_is_that_of_one_process(seen: dict[str, list[Any]], scene: str) -> None:
    for found in seen[scene]:
        assert_same(found, alone(with_table()))


def test_a_process_may_train_a_model_of_its_own(seen: dict[str, list[Any]]) -> None:
    """In a group of one it sees what it sees alone, and the other process sees something else."""
    for rank in RANKS:
        assert_same(seen["a_model_of_its_own"][rank], look(make_net(), data_of(rank)))


def test_a_single_process_needs_no_wrapper(tmp_path: Path) -> None:
    """As where a script that can run on many processes is started on one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        found = alone()
    finally:
        dist.destroy_process_group()
    assert_same(found, alone())


@pytest.mark.parametrize("scene", ["ddp_with_other_buffers_here", "fsdp_with_other_buffers_here"])
def test_the_buffers_are_those_of_the_first_process(seen: dict[str, list[Any]], scene: str) -> None:
    for found in seen[scene]:
        assert_same(found, alone(with_batch_norm()))


@pytest.mark.parametrize("scene", ["ddp_goes_on", "fsdp_goes_on"])
def test_parameters_gradients_and_buffers_stay_the_same_tensors_with_the_same_values(
    seen: dict[str, list[Any]], scene: str
) -> None:
    assert seen[scene] == [True, True]


def test_a_step_after_an_observation_is_seen_by_the_next_forward(seen: dict[str, list[Any]]) -> None:
    """FSDP2 would read the parameters that it gathered before the step, had they not been freed."""
    assert seen["fsdp_steps_on"] == [0.0, 0.0]


def test_under_fsdp_few_numbers_are_sent_besides_its_own(seen: dict[str, list[Any]]) -> None:
    """The gram, the values and their counts, seven numbers more, one flag per parameter, two numbers before each batch
    and at the end of each loader, and the share and the sizes of two parts by data term."""
    flags = len(list(make_net().parameters()))
    for sent in seen["fsdp_traffic"]:
        assert isinstance(sent, int)
        assert sent <= (K + 1) ** 2 + 2 * (K + 1) + 7 + flags + 2 * (3 + 3) + (2 + 1) + 2 * 2


def test_under_fsdp_a_loss_with_penalties_has_the_gradient_of_one_process(seen: dict[str, list[Any]]) -> None:
    assert seen["fsdp_trains_with_penalties"] == [pytest.approx(0, abs=1e-12)] * 2


def test_one_forward_under_fsdp_gives_the_gradients_of_many_terms(seen: dict[str, list[Any]]) -> None:
    assert seen["one_forward_many_terms"] == [pytest.approx(0, abs=1e-12)] * 2


def test_sums_are_over_processes_in_place_and_keep_kinds_apart(seen: dict[str, list[Any]]) -> None:
    assert seen["sums"] == [[[3.0] * 6, [2.0] * 2, [10.0] * 12, [2**61 + 1]]] * 2


def test_batches_in_step_are_the_batches(seen: dict[str, list[Any]]) -> None:
    assert seen["steps"] == [[[], [0, 1, 2]]] * 2


@pytest.mark.parametrize(
    ("scene", "messages"),
    [
        ("fsdp_with_fewer_batches_here", ["after 1 batches 1 of 2 processes had no more"] * 2),
        ("fsdp_with_fewer_validation_batches_here", ["after 1 batches 1 of 2 processes had no more"] * 2),
        ("fsdp_with_no_batches_here", ["at least one batch; found none", "1 of 2 failed"]),
        ("fsdp_with_a_broken_loader_here", ["OSError: disk on fire", "1 of 2 failed"]),
        ("fsdp_of_a_part", ["FSDP2 must shard every trainable parameter, but 'shift' is ignored"] * 2),
        ("fsdp_without_synchronization", ["Gradients must be synchronized before an observation"] * 2),
        ("hybrid_shards", ["must be sharded over a mesh of one dimension"] * 2),
        ("tensor_parallel", ["must be sharded over a mesh of one dimension"] * 2),
        ("fsdp_with_nan_here", ["NotFinite: Values must be finite; 'logloss' is nan"] * 2),
        ("ddp_with_nan_here", ["NotFinite: Values must be finite; 'logloss' is nan"] * 2),
        ("ddp_with_no_batches_here", ["at least one batch; found none", "1 of 2 failed"]),
        (
            "fsdp_with_own_penalty",
            ["under FSDP2 'own' would see shards of them. If it is a sum over single entries"] * 2,
        ),
        ("fsdp_trains_with_own_penalty", ["under FSDP2 'Norm' would see shards of them"] * 2),
        ("ddp_of_the_model_inside", ["found a plain Net in one of 2 processes. Pass what DistributedDataParallel"] * 2),
        ("ddp_around_a_part", ["DistributedDataParallel must be around the whole model"] * 2),
    ],
)
def test_every_process_is_told_what_is_wrong(seen: dict[str, list[Any]], scene: str, messages: list[str]) -> None:
    """An error in each, and none that waits for the other."""
    for found, message in zip(seen[scene], messages, strict=True):
        assert message in str(found)


def test_a_compiled_model_is_seen_as_it_was_before() -> None:
    """Compiled as a whole, and its block in place; the backend is one that refuses a second backward."""
    net = make_net()
    net.block.compile(backend="aot_eager")
    assert_same(alone(torch.compile(net, backend="aot_eager")), alone())


def test_a_plain_model_belongs_to_no_group() -> None:
    assert isinstance(processes_of(make_net()), Alone)


# --- sources ----------------------------------------------------------------------------------------------------------


def test_under_ddp_sources_count_by_their_rows_in_all_processes(seen: dict[str, list[Any]]) -> None:
    """One process has no rows of the last source; the error is on a mix of two sets, each of unequal sizes."""
    expected = of_sources(make_net(), RANKS)
    for found in seen["ddp_of_sources"]:
        np.testing.assert_allclose(found.features, expected.features, rtol=1e-12)
        np.testing.assert_allclose(found.gram[:-1, :-1], expected.gram[:-1, :-1], rtol=1e-10)
    first, second = seen["ddp_of_sources"]
    assert first.error == second.error  # that of sets that are cut in two: the mean of the errors of the processes
    halves = [of_sources(make_net(), [1]).error, of_sources_error(0)]
    assert first.error == pytest.approx(sum(halves) / 2, rel=1e-12)


def of_sources_error(part: int) -> float:
    one, two = (cross_entropy(make_net(), batch).item() for batch in make_batches(VALIDATION[part], 10 + part))
    return 0.75 * one + 0.25 * two


def test_under_fsdp_a_batch_must_have_rows_of_all_sources(seen: dict[str, list[Any]]) -> None:
    for said in seen["fsdp_of_sources"]:
        assert said.startswith("InvalidInput: Under FSDP2, each batch must have rows of all sources")


def test_under_fsdp_a_loader_of_sources_gives_what_one_process_sees(seen: dict[str, list[Any]]) -> None:
    expected = of_a_loader_of_sources(make_net(), RANKS)
    for found in seen["fsdp_of_a_loader_of_sources"]:
        np.testing.assert_allclose(found.features, expected.features, rtol=1e-12)
        np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-10)


def test_processes_draw_different_parts_of_the_same_mixture(seen: dict[str, list[Any]]) -> None:
    """Together they have each example of the sources once per epoch, in the proportions of the weights."""
    first, second = seen["mixture"]
    both = [a + b for a, b in zip(first, second, strict=True)]
    assert sorted(number for batch in both for number in batch) == [*range(60), *range(100, 120)]
    assert all(sum(number >= 100 for number in batch) == 2 for batch in both)


def test_sources_of_unequal_length_are_observed_together(seen: dict[str, list[Any]]) -> None:
    first, second = seen["ddp_of_sources_of_unequal_length"]
    np.testing.assert_array_equal(first.gram, second.gram)


def test_processes_observe_as_often_as_one_at_the_same_cost(seen: dict[str, list[Any]]) -> None:
    assert seen["ddp_at_a_cost"] == [due(make_net())] * 2
