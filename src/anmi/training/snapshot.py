"""What of a running training a checkpoint holds, and putting it back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def random_state() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch; cheap enough for every step."""
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 -- libraries draw from the global one
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def random_to_json(state: dict[str, Any]) -> dict[str, Any]:
    """Return :func:`random_state` as plain JSON values."""
    name, keys, *others = state["numpy"]
    tensors: dict[str, Any] = {key: state[key].tolist() for key in ("torch", "cuda") if key in state}
    return {"python": state["python"], "numpy": [name, keys.tolist(), *others], **tensors}


def restore_random(values: dict[str, Any]) -> None:
    """Put the generators into the states of :func:`random_to_json`.

    Examples
    --------
    >>> kept = random_to_json(random_state())
    >>> first = random.random(), torch.rand(1).item()
    >>> restore_random(kept)
    >>> first == (random.random(), torch.rand(1).item())
    True
    """
    version, internal, gauss = values["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *others = values["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *others))  # noqa: NPY002
    torch.set_rng_state(torch.tensor(values["torch"], dtype=torch.uint8))
    if "cuda" in values and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.tensor(values["cuda"], dtype=torch.uint8))


def optimizer_tensors(optimizer: Any) -> dict[str, Tensor]:
    """Return the running averages of an optimizer as ``<parameter>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


def restore_optimizer(optimizer: Any, tensors: dict[str, Tensor]) -> None:
    """Put the running averages back; learning rates and decay stay what the options of this training say."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def restore_scheduler(scheduler: Any, optimizer: Any, step: int) -> None:
    """Put a scheduler whose learning rate is a function of the step after ``step`` steps."""
    scheduler.last_epoch = step
    scheduler._step_count = step + 1
    rates = [base * factor(step) for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = rates
