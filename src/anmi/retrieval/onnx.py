"""The network of a bi-encoder or cross-encoder by ONNX Runtime: as it is, or with 8-bit weights; the rest stays.

Texts go through the network one at a time. On a processor that is as fast as a batch, wastes nothing on padding, and
makes a result independent of the texts that it was computed with: the activations of the 8-bit network are rounded by
one scale for all that goes through at once.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from anmi.errors import AnmiError
from anmi.files import aside
from anmi.retrieval.kinds import is_routed, is_static

log = logging.getLogger(__name__)

Way = Literal["onnx-float32", "onnx-int8"]
WAYS: Final[tuple[Way, ...]] = ("onnx-float32", "onnx-int8")
FOLDER: Final = "onnx-"
_FILE: Final = "model.onnx"
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_OPSET: Final = 17
# What may follow a transformer that yields it: pooling or a head, or nothing.
_YIELDS: Final = {"SentenceTransformer": ("token_embeddings",), "CrossEncoder": ("token_embeddings", "scores")}
_EXAMPLE: Final = ["a text", "another text, which is longer than the first"]
_opening: Final = threading.Lock()
_opened: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()


def installed() -> bool:
    """Tell whether the packages of the extra ``onnx`` are there."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def is_exportable(model: Any) -> bool:
    """Tell whether the model is one transformer for texts or pairs of them, with what may follow."""
    yields = _YIELDS.get(type(model).__name__, ())
    if not yields or is_static(model) or is_routed(model) or type(model[0]).__name__ != "Transformer":
        return False
    # The network of any other output may return what follows does not expect.
    how = model[0].modality_config.get("text", {})
    return model[0].module_output_name in yields and how.get("method") == "forward"


def by_onnx(model: Any, way: Way, folder: Path) -> Any:
    """Return a model that shares everything with ``model`` but the network, which ONNX Runtime runs.

    Parameters
    ----------
    model
        As :func:`is_exportable` accepts it.
    way
        ``onnx-float32`` or ``onnx-int8``.
    folder
        Where the exported network is kept, made when it is not there.

    Raises
    ------
    AnmiError
        The extra is not installed, or the network cannot be exported.
    """
    if not installed():
        raise AnmiError(f'"{way}" needs ONNX Runtime: pip install "anmi[onnx]", or set the backend to torch')
    with _opening:
        opened = _opened.setdefault(model, {})
        if way not in opened:
            if not (folder / _FILE).exists():
                _export(model, way, folder)
            opened[way] = _with_network(model, folder / _FILE)
        return opened[way]


def _export(model: Any, way: Way, folder: Path) -> None:
    """Write the network to ``folder``; its weights for 8 bits are rounded by column."""
    import torch

    log.info("Exporting a network to ONNX (%s; once, some ten seconds)", way)
    network = copy.deepcopy(model[0].model).float().cpu().eval()
    names, output = _inputs(model), _output(model)
    example = model.preprocess(_example(model))

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: Any) -> Any:
            return self.network(**dict(zip(names, values, strict=True)), return_dict=True)[output]

    try:
        with aside(folder) as written, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What the others compute by is no operator of ONNX.
            network.set_attn_implementation("eager")
            written.mkdir()
            axes = {0: "texts", 1: "tokens"} if output == "last_hidden_state" else {0: "texts"}
            whole = written / ("whole.onnx" if way == "onnx-int8" else _FILE)
            torch.onnx.export(
                Traced(), tuple(example[name] for name in names), str(whole), input_names=list(names),
                output_names=[output], opset_version=_OPSET, dynamo=False,
                dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names} | {output: axes},
            )  # fmt: skip
            if way == "onnx-int8":
                _to_eight_bits(whole, written / _FILE)
                whole.unlink()
    except Exception as error:
        # Of any kind: an operator that ONNX lacks, a branch that depends on a value, a network above 2 GB.
        said = " ".join(str(error).split())[:200]
        raise AnmiError(f"the network cannot be written as ONNX ({said}): set its backend to torch") from error


def _to_eight_bits(whole: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    chatty = logging.getLogger()
    level = chatty.level
    chatty.setLevel(logging.ERROR)
    try:
        # Seven bits of the eight: without VNNI a processor adds products in 16 bits, which would overflow.
        quantize_dynamic(whole, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    finally:
        chatty.setLevel(level)


def _example(model: Any) -> list[Any]:
    pairs = type(model).__name__ == "CrossEncoder"
    return [(text, text) for text in _EXAMPLE] if pairs else _EXAMPLE


def _inputs(model: Any) -> Sequence[str]:
    given = model.preprocess(_example(model))
    return [name for name in _INPUTS if name in given]


def _output(model: Any) -> str:
    return str(model[0].modality_config["text"]["method_output_name"])


def _with_network(model: Any, file: Path) -> Any:
    """Copy the model, but not its weights, with another network in the first module."""
    import torch

    names, output = _inputs(model), _output(model)
    session = _session(file)

    class Network(torch.nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None, **_: Any) -> dict[str, Any]:
            values = dict(zip(_INPUTS, (input_ids, attention_mask, token_type_ids), strict=True))
            (found,) = session.run([output], {name: values[name].numpy() for name in names})
            return {output: torch.from_numpy(found)}

    fast, first = copy.copy(model), copy.copy(model[0])
    first._modules = dict(first._modules)
    first.model = Network(model[0].model.config)
    fast._modules = {name: first if module is model[0] else module for name, module in model._modules.items()}
    return fast


def _session(file: Path) -> Any:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    # Threads that wait for work busily take the processor from the other workers.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
