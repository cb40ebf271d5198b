"""A network that encodes on a processor multiplies in eight-bit integers; none trains in them."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Final

import torch

from anmi.engine.threads import for_threads

# Of an input: with seven bits no pair of products overflows the sixteen bits in which processors
# without VNNI add it, so that vectors are the same on those with it.
_STEPS: Final = 63
_WEIGHT_STEPS: Final = 127
_SMALLEST: Final = 1e-12


class IntegerLinear(torch.nn.Module):
    """A linear layer in eight-bit integers, with a scale of its own for each row of the input.

    So a text's vector does not depend on what stands in other rows, as it would with one scale for
    a whole pass.
    """

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scales = weight.abs().amax(1).clamp_min(_SMALLEST).double() / _WEIGHT_STEPS
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        with warnings.catch_warnings():
            # They say that torch moves its quantisation for training elsewhere.
            warnings.simplefilter("ignore", UserWarning)
            integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(integers, None)
        self.bias = 0.0 if layer.bias is None else layer.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, float32 [..., out], of ``rows``, float32 [..., in]."""
        largest = rows.abs().amax(-1, keepdim=True).clamp_min(_SMALLEST)
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / largest, 1 / _STEPS, _STEPS + 1, self.packed
        )
        return product.mul_(largest).add_(self.bias)


def in_integers(model: Any) -> Any:
    """Return a model that encodes as ``model`` does, its linear layers in eight-bit integers.

    It shares all other weights, and is kept with ``model`` until a weight changes.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> in_integers(model)
    Sequential(
      (0): IntegerLinear()
    )
    """
    state = weights_state(model)
    before, integers = model.__dict__.get("in_integers", (None, None))
    if before != state:
        shared = {id(weights): weights for weights in model.parameters()}
        model.__dict__.pop("in_integers", None)
        integers = copy.deepcopy(model, shared).eval()
        if hasattr(integers, "preprocess"):
            for_threads(integers)
        for parent in list(integers.modules()):
            for name, layer in list(parent.named_children()):
                if type(layer) is torch.nn.Linear:
                    setattr(parent, name, IntegerLinear(layer))
        # Not as a module of it, whose weights would count among its own.
        model.__dict__["in_integers"] = (state, integers)
    return integers


def weights_state(model: Any) -> tuple[tuple[int, int], ...]:
    """Return what changes with any weight: where each lies, and how often it was written."""
    return tuple((weights.data_ptr(), weights._version) for weights in model.parameters())
