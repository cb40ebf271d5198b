"""Training on several devices of a machine: helpers encode shares of each batch, and this process does all the rest.

A loss sees the whole batch, so the negatives of a row come from all devices, and the gradient is that of one device
with the same batch: texts are encoded apart and put together before the loss, whose gradients by the embeddings go back
to where these were made. The gradients by the weights are added up, one step of the optimizer is made here, and the
weights go out again, which is what an all-reduce sends, too. Curricula, samplers, checkpoints and all else that has a
state is in this process alone (Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
2021, section 3, with the embeddings' gradients as here).
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from anmi.errors import AnmiError
from anmi.training.objective import ContrastiveObjective, autocast_type
from anmi.training.options import TrainingOptions

# Helpers wait while the retriever is measured or a corpus is encoded.
_PATIENCE: Final = timedelta(days=7)
Features = dict[str, Any]


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class _Place:
    """Which process of how many this is, the file by which they find each other, and where it computes."""

    rank: int
    world: int
    file: str
    device: str

    def join(self) -> Any:
        """Enter the group; return who sends weights and gradients, which on GPUs go from one to the other."""
        distributed.init_process_group(
            "gloo", init_method=f"file://{self.file}", rank=self.rank, world_size=self.world, timeout=_PATIENCE
        )
        return distributed.new_group(backend="nccl", timeout=_PATIENCE) if self.device.startswith("cuda") else None


class Team:
    """Helpers that encode shares of a batch, as this process sees them; see :func:`working`."""

    def __init__(self, encoder: nn.Module, helpers: int, group: Any, seed: int) -> None:
        self._encoder, self._helpers, self._group, self._seed = encoder, helpers, group, seed
        self._step = self._calls = 0

    def begin(self, step: int) -> None:
        """Send the weights to all, before the first texts of a step are encoded."""
        self._step, self._calls = step, 0
        self._ask("weights", [self._encoder.training] * self._helpers)
        with torch.no_grad():
            distributed.broadcast(parameters_to_vector(self._encoder.parameters()), 0, group=self._group)

    def encode(self, objective: ContrastiveObjective, groups: Sequence[Features]) -> Tensor:
        """Return the embeddings [n, d] of the texts of all groups, in order; each process takes every n-th group."""
        world, call = self._helpers + 1, self._calls
        self._calls += 1
        shares = [list(groups[rank::world]) for rank in range(world)]
        sent = [_on_cpu(share) for share in shares[1:]]
        draws = [self._draws(call, rank) for rank in range(1, world)]
        self._ask("encode", [(call, share, draw) for share, draw in zip(sent, draws, strict=True)])
        own = objective.parts(shares[0])
        others = self._answers()
        device = own[0].device
        parts = [own, *([part.to(device) for part in share] for share in others)]
        order = [parts[number % world][number // world] for number in range(len(groups))]
        found: Tensor = _Gathered.apply(self, call, world, order, *own)  # type: ignore[no-untyped-call]
        return found

    def send_back(self, call: int, gradients: Sequence[Tensor]) -> None:
        """Let the helpers go on with what a loss says of the embeddings of a call, group by group."""
        world = self._helpers + 1
        shares = [[part.cpu() for part in gradients[rank::world]] for rank in range(1, world)]
        self._ask("gradient", [(call, share) for share in shares])

    def reduce(self) -> None:
        """Add the helpers' gradients to those of this process."""
        self._ask("reduce", [None] * self._helpers)
        self._answers()
        parameters = _trained(self._encoder)
        total = _gradients(parameters)
        distributed.reduce(total, 0, group=self._group)
        parts = torch.split(total, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            if parameter.grad is not None or part.any():
                parameter.grad = part.view_as(parameter).clone()

    def end(self) -> None:
        """Let the helpers go home."""
        self._ask("end", [None] * self._helpers)

    def _ask(self, task: str, loads: Sequence[Any]) -> None:
        distributed.scatter_object_list([None], [None, *((task, load) for load in loads)], 0)

    def _answers(self) -> list[Any]:
        answers: list[Any] = [None] * (self._helpers + 1)
        distributed.gather_object(None, answers, 0)
        for answer in answers[1:]:
            if isinstance(answer, str):
                raise RuntimeError(answer)
        return answers[1:]

    def _draws(self, call: int, rank: int) -> int:
        """Return the seed of what a helper draws for dropout, which depends on nothing that is not stored."""
        return int(np.random.SeedSequence([self._seed, self._step, call, rank]).generate_state(1)[0])


class _Gathered(torch.autograd.Function):
    """Puts embeddings together, of which some were made elsewhere; their gradients go back there."""

    @staticmethod
    def forward(ctx: Any, team: Team, call: int, world: int, order: list[Tensor], *own: Tensor) -> Tensor:
        ctx.team, ctx.call, ctx.world, ctx.sizes = team, call, world, [len(part) for part in order]
        return torch.cat([part.detach() for part in order])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        parts = torch.split(gradients[0], ctx.sizes)
        ctx.team.send_back(ctx.call, parts)
        return None, None, None, None, *parts[:: ctx.world]


@contextmanager
def working(encoder: nn.Module, options: TrainingOptions, precision: torch.dtype, seed: int) -> Iterator[Team | None]:
    """Start the helpers of a training and end them; None where one device is all there is to be.

    Parameters
    ----------
    encoder
        On the device of this process: the CPU, whose threads are shared out, or the first GPU.
    options
        With the number of processes, this one among them.
    precision
        What the encoder computes in.
    seed
        Of dropout.

    Raises
    ------
    AnmiError
        There are not so many GPUs, or this process was itself started as one of several.
    """
    devices = options.devices
    if devices == 1:
        yield None
        return
    kind = next(encoder.parameters()).device.type
    if kind == "cuda" and torch.cuda.device_count() < devices:
        raise AnmiError(f"training.options.devices is {devices}, but this machine has {torch.cuda.device_count()} GPUs")
    if distributed.is_initialized():
        raise AnmiError("start training as one process: training.options.devices starts the others")
    threads = torch.get_num_threads()
    share = max(1, threads // devices)
    with tempfile.TemporaryDirectory(prefix="anmi-devices-") as folder:
        places = [
            _Place(rank, devices, str(Path(folder) / "meeting"), f"{kind}:{rank}" if kind == "cuda" else kind)
            for rank in range(devices)
        ]
        loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        context = torch.multiprocessing.get_context("spawn")
        with environment(loopback | {"OMP_NUM_THREADS": str(share)}):
            given = (copy.deepcopy(encoder).cpu(), share, autocast_type(precision), options.recompute)
            helpers = [context.Process(target=_help, args=(place, *given), daemon=True) for place in places[1:]]
            for helper in helpers:
                helper.start()
            group = places[0].join()
        torch.set_num_threads(share)
        patience = 0
        try:
            team = Team(encoder, devices - 1, group, seed)
            yield team
            team.end()
            patience = 5
        except RuntimeError as error:
            # A helper that is killed takes its connections with it.
            for helper in helpers:
                helper.join(1)
            if any(helper.exitcode not in (None, 0) for helper in helpers):
                raise AnmiError(
                    "a process that helped to train was killed, most likely for want of memory: lower "
                    "training.options.texts_per_pass, batch_size or devices"
                ) from error
            raise
        finally:
            torch.set_num_threads(threads)
            for helper in helpers:
                helper.join(patience)
                helper.terminate()
            distributed.destroy_process_group()


def _help(place: _Place, given: nn.Module, threads: int, autocast: torch.dtype | None, recompute: bool) -> None:
    """Do what the first process asks for, until it says that this is all."""
    torch.set_num_threads(threads)
    group = place.join()
    # What processes are given lies in memory that all of them share.
    encoder = copy.deepcopy(given).to(place.device)
    objective = ContrastiveObjective(encoder, nn.Identity(), autocast, recompute=recompute)
    made: dict[int, list[Tensor]] = {}
    failed: str | None = None
    while True:
        received: list[Any] = [None]
        distributed.scatter_object_list(received, None, 0)
        task, load = received[0]
        if task == "end":
            # Nothing of the interpreter's own ending is wanted here, such as joining threads of tokenizers.
            os._exit(0)
        if task == "weights":
            made.clear()
            encoder.train(load)
            vector = parameters_to_vector(encoder.parameters()).detach()
            distributed.broadcast(vector, 0, group=group)
            vector_to_parameters(vector, encoder.parameters())
            continue
        try:
            if task == "encode":
                call, share, draw = load
                torch.manual_seed(draw)
                made[call] = objective.parts(_to(share, place.device))
            elif task == "gradient":
                call, gradients = load
                if gradients:
                    torch.autograd.backward(made.pop(call), [part.to(place.device) for part in gradients])
        except (MemoryError, RuntimeError) as error:
            # Told at the next answer, since the others wait for that one only.
            failed = f"{type(error).__name__}: {error}"
        if task == "encode":
            distributed.gather_object(failed or [part.detach().cpu() for part in made[call]], None, 0)
        elif task == "reduce":
            distributed.gather_object(failed, None, 0)
            parameters = _trained(encoder)
            distributed.reduce(_gradients(parameters), 0, group=group)
            encoder.zero_grad()


def _trained(encoder: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in encoder.parameters() if parameter.requires_grad]


def _gradients(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the gradients in a row, 0 where there is none."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


def _to(groups: Sequence[Features], device: str) -> list[Features]:
    return [{key: v.to(device) if isinstance(v, Tensor) else v for key, v in group.items()} for group in groups]


def _on_cpu(groups: Sequence[Features]) -> list[Features]:
    return _to(groups, "cpu")
