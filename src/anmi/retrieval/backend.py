"""What runs an encoder's network on this machine: torch, or ONNX Runtime where that is faster and near enough.

It is measured once for a model and a machine, on some of the very texts to be encoded, and remembered beside the
store: a second run must not choose otherwise, or its vectors would differ.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.files import aside
from anmi.fingerprint import hash_text
from anmi.retrieval.encoders import embed, embedding_fingerprint, resolve_precision
from anmi.retrieval.kinds import device, is_static
from anmi.retrieval.onnx import WAYS, Way, installed, is_exportable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.encoders import Encoder

log = logging.getLogger(__name__)

Backend = Literal["torch", "onnx", "onnx-int8", "auto"]
_WAYS: Final[dict[str, Way]] = {"onnx": "onnx-float32", "onnx-int8": "onnx-int8"}
# Texts that are measured: some seconds each way with a network of MiniLM's size and passages.
SAMPLE: Final = 48
# Cosine of a vector to that of torch in float32. The 8-bit MiniLM has .993 on average and .988 at worst on SciFact,
# where nDCG@10 stays the same within its error; torch's own 8-bit network has .93 and keeps 78 % of neighbours.
MEAN_COSINE: Final = 0.99
WORST_COSINE: Final = 0.97
# Share of the ten nearest of a text within the sample that stay.
NEIGHBOURS: Final = 0.8
_NEAREST: Final = 10
# Below this the other way is not worth another kind of vectors: the measurement errs by about as much.
_WORTH: Final = 1.15


class Parity(NamedTuple):
    """How near vectors are to those of torch in float32."""

    mean_cosine: float
    worst_cosine: float
    neighbours: float

    @property
    def good(self) -> bool:
        """Whether retrieval may rely on them."""
        return self.mean_cosine >= MEAN_COSINE and self.worst_cosine >= WORST_COSINE and self.neighbours >= NEIGHBOURS


def parity(found: NDArray[np.float32], exact: NDArray[np.float32]) -> Parity:
    """Compare unit vectors, float32 [T, D], with those of the reference.

    Examples
    --------
    >>> parity(np.eye(12, dtype=np.float32), np.eye(12, dtype=np.float32)).good
    True
    """
    cosines = np.einsum("td,td->t", found, exact)
    nearest = [_nearest(each) for each in (found, exact)]
    kept = [len(np.intersect1d(*pair)) / len(pair[0]) for pair in zip(*nearest, strict=True)]
    return Parity(float(cosines.mean()), float(cosines.min()), float(np.mean(kept)))


def _nearest(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, : min(_NEAREST, max(1, len(vectors) - 1))]


def choose(
    model: Encoder, texts: Sequence[str], backend: Backend, precision: str, batch_size: int, models: Path
) -> str:
    """Return by what to encode: a precision of :func:`anmi.retrieval.encoders.encode`.

    Parameters
    ----------
    model
        The encoder.
    texts
        Documents that are going to be encoded; some of them are measured.
    backend
        ``auto`` takes the fastest of those that are near enough; a named one is checked all the same, at its first
        use, and gives way with a warning.
    precision, batch_size
        Of torch.
    models
        Where the choice is remembered, with what was measured.

    Raises
    ------
    AnmiError
        ONNX Runtime is asked for by name and not installed.
    """
    exact = "float32" if is_static(model) else resolve_precision(precision)
    if backend == "torch" or is_static(model):
        return exact
    if not installed():
        if backend != "auto":
            raise AnmiError(f'dense.backend={backend} needs ONNX Runtime: pip install "anmi[onnx]", or set torch')
        log.info("ONNX Runtime is not installed, so the encoder is run by torch; anmi[onnx] would be measured")
        return exact
    if device() != "cpu" or not is_exportable(model) or not texts:
        if backend != "auto":
            log.warning("dense.backend=%s is for one transformer on a processor; this encoder runs by torch", backend)
        return exact
    kept = models / "backends" / f"{_key(model, backend, exact)}.json"
    if not kept.exists():
        measured = _measure(model, _sample(texts), backend, exact, batch_size)
        with aside(kept) as file:
            file.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))
    log.info("The encoder is run by %s (%s)", found["chosen"], found["because"])
    return str(found["chosen"])


def _sample(texts: Sequence[str]) -> list[str]:
    """Take texts of all lengths, at even distances."""
    ordered = sorted(set(texts), key=lambda text: (len(text), text))
    places = np.unique(np.linspace(0, len(ordered) - 1, min(SAMPLE, len(ordered))).astype(int))
    return [ordered[place] for place in places]


def _key(model: Encoder, backend: Backend, exact: str) -> str:
    """Return a hash of what a measurement depends on: the model, the processor and the versions."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") if Path("/proc/cpuinfo").exists() else ""
    flags = re.search(r"^flags\s*:(.*)$", cpu, re.MULTILINE)
    known = " ".join(sorted(flags.group(1).split())) if flags else platform.machine()
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime", "onnx", "transformers")]
    return hash_text("\n".join([embedding_fingerprint(model, exact, "document"), backend, known, *versions]))


def _measure(
    model: SentenceTransformer, texts: list[str], backend: Backend, exact: str, batch_size: int
) -> dict[str, Any]:
    """Encode the sample in all ways that may be chosen, and choose."""
    reference = embed(model, texts, "float32", batch_size, "document")
    ways: tuple[str, ...] = (exact, *WAYS) if backend == "auto" else (_WAYS[backend], exact)
    rates: dict[str, float] = {}
    near: dict[str, Parity] = {}
    for way in ways:
        try:
            # What is made at the first use is not measured.
            embed(model, texts[:1], way, batch_size, "document")
            rates[way], vectors = _rate(model, texts, way, batch_size)
        except AnmiError as error:
            log.warning("%s; the encoder is run by torch", error)
            continue
        near[way] = parity(vectors, reference)
        if not near[way].good and way != exact:
            log.warning(
                "By %s the encoder's vectors are too far from torch's (cosine %.3f on average and %.3f at worst, "
                "%.0f %% of neighbours kept), so it is not used",
                way, near[way].mean_cosine, near[way].worst_cosine, 100 * near[way].neighbours,
            )  # fmt: skip
    good = [way for way in rates if way == exact or near[way].good]
    if backend == "auto":
        chosen = max(good, key=lambda way: rates[way] if way != exact else rates[way] * _WORTH)
    else:
        chosen = good[0]
    said = ", ".join(f"{way} {rates[way]:.1f}" for way in rates)
    return {
        "chosen": chosen,
        "because": f"documents per processor second: {said}",
        "measured": {way: {"rate": rates[way], **near[way]._asdict()} for way in rates},
    }


def _rate(model: Any, texts: list[str], way: str, batch_size: int) -> tuple[float, NDArray[np.float32]]:
    """Return texts per second of the processor: what else runs on the machine must not choose."""
    start = time.process_time()
    vectors = embed(model, texts, way, batch_size, "document")
    return len(texts) / max(time.process_time() - start, 1e-6), vectors
