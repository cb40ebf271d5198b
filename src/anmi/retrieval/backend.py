"""What runs a network on this machine: torch, or ONNX Runtime where that is faster and near enough.

It is measured once for a model and a machine, on some of the very texts to be encoded, or pairs to be judged, and
remembered beside the store: a second run must not choose otherwise, or its vectors or scores would differ.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.files import aside
from anmi.fingerprint import hash_text
from anmi.retrieval.encoders import embed, embedding_fingerprint
from anmi.retrieval.kinds import device, exact_precision, is_static
from anmi.retrieval.onnx import WAYS, Way, installed, is_exportable

if TYPE_CHECKING:
    from anmi.retrieval.encoders import Encoder

log = logging.getLogger(__name__)

Backend = Literal["torch", "onnx", "onnx-int8", "auto"]
_WAYS: Final[dict[str, Way]] = {"onnx": "onnx-float32", "onnx-int8": "onnx-int8"}
# Texts or pairs that are measured: some seconds each way with a network of MiniLM's size and passages.
SAMPLE: Final = 48
# Cosine of a vector to that of torch in float32. The 8-bit MiniLM has .993 on average and .988 at worst on SciFact,
# where nDCG@10 stays the same within its error; torch's own 8-bit network has .93 and keeps 78 % of neighbours.
MEAN_COSINE: Final = 0.99
WORST_COSINE: Final = 0.97
# Share of the ten nearest of a text within the sample that stay.
NEIGHBOURS: Final = 0.8
_NEAREST: Final = 10
# Scores of a judge are calibrated, so neither scale nor place counts. On candidates of SciFact the 8-bit cross-encoder
# has .996, a quarter of a standard deviation at worst, and 97 % of pairs in their order.
CORRELATION: Final = 0.99
WORST_SCORE: Final = 0.5
ORDER: Final = 0.95
# Below this the other way is not worth another kind of vectors: the measurement errs by about as much.
_WORTH: Final = 1.15


class Nearness(Protocol):
    """How near what a network yields is to what torch yields in float32; a named tuple of figures."""

    @property
    def good(self) -> bool:
        """Whether it may stand in for it."""

    def _asdict(self) -> dict[str, Any]: ...


class Parity(NamedTuple):
    """How near vectors are to those of torch in float32."""

    mean_cosine: float
    worst_cosine: float
    neighbours: float

    @property
    def good(self) -> bool:
        """Whether retrieval may rely on them."""
        return self.mean_cosine >= MEAN_COSINE and self.worst_cosine >= WORST_COSINE and self.neighbours >= NEIGHBOURS

    def __str__(self) -> str:
        """Return the figures in words."""
        return (
            f"cosine {self.mean_cosine:.3f} on average and {self.worst_cosine:.3f} at worst, "
            f"{100 * self.neighbours:.0f} % of neighbours kept"
        )


class ScoreParity(NamedTuple):
    """How near scores are to those of torch in float32: as a line through them, at worst, and in their order."""

    correlation: float
    worst: float
    order: float

    @property
    def good(self) -> bool:
        """Whether a judge may rely on them."""
        return self.correlation >= CORRELATION and self.worst <= WORST_SCORE and self.order >= ORDER

    def __str__(self) -> str:
        """Return the figures in words."""
        return (
            f"correlation {self.correlation:.3f}, {self.worst:.2f} standard deviations apart at worst, "
            f"{100 * self.order:.0f} % of pairs in their order"
        )


@dataclass(frozen=True)
class Network:
    """A network that may be run in several ways.

    Attributes
    ----------
    called, counted
        What it is, and what it is run on, for the log.
    setting
        The parameter that says how to run it.
    fingerprint
        Of the model as torch runs it.
    exact
        The precision in which torch does.
    open
        Returns the model; called only where it is measured.
    compute
        Yields float32 [T, D] for T texts, or [T] for T pairs, of a model in a way.
    compare
        Says how near two results of ``compute`` are, the second of which is torch's.
    """

    called: str
    counted: str
    setting: str
    fingerprint: str
    exact: str
    open: Callable[[], Any]
    compute: Callable[[Any, list[str], str], NDArray[np.float32]]
    compare: Callable[[NDArray[np.float32], NDArray[np.float32]], Nearness]


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


def score_parity(found: NDArray[np.float32], exact: NDArray[np.float32]) -> ScoreParity:
    """Compare scores, float32 [T], with those of the reference.

    Examples
    --------
    >>> scores = np.arange(5, dtype=np.float32)
    >>> score_parity(2 * scores + 1, scores)
    ScoreParity(correlation=1.0, worst=0.0, order=1.0)
    >>> score_parity(-scores, scores).good
    False
    """
    one, other = (_standardised(each.astype(np.float64)) for each in (found, exact))
    upper = np.triu_indices(len(other), 1)
    signs = [np.sign(each[:, None] - each[None, :])[upper] for each in (one, other)]
    told = signs[1] != 0
    order = float((signs[0] == signs[1])[told].mean()) if told.any() else 1.0
    correlation = float((one * other).mean()) if one.any() or other.any() else 1.0
    return ScoreParity(round(correlation, 6), round(float(np.abs(one - other).max()), 6), order)


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return (values - values.mean()) / (values.std() or 1.0)


def choose(
    model: Encoder, texts: Sequence[str], backend: Backend, precision: str, batch_size: int, models: Path
) -> str:
    """Return by what to encode: a precision of :func:`anmi.retrieval.encoders.encode`; see :func:`choose_way`.

    Parameters
    ----------
    model
        The encoder.
    texts
        Documents that are going to be encoded.
    backend, models
        See there.
    precision, batch_size
        Of torch.
    """
    exact = exact_precision(model, precision)
    if backend == "torch" or is_static(model):
        return exact
    return choose_way(
        Network(
            called="encoder",
            counted="documents",
            setting="dense.backend",
            fingerprint=embedding_fingerprint(model, exact, "document"),
            exact=exact,
            open=lambda: model,
            compute=lambda opened, some, way: embed(opened, some, way, batch_size, "document"),
            compare=parity,
        ),
        texts, backend, models,
    )  # fmt: skip


def choose_way(network: Network, texts: Sequence[str], backend: Backend, models: Path) -> str:
    """Return in which way to run a network: a precision of torch, or one of :data:`anmi.retrieval.onnx.WAYS`.

    Parameters
    ----------
    network
        What is run.
    texts
        What it is going to be run on; some of them are measured.
    backend
        ``auto`` takes the fastest of those that are near enough; a named one is checked all the same, at its first
        use, and gives way with a warning.
    models
        Where the choice is remembered, with what was measured.

    Raises
    ------
    AnmiError
        ONNX Runtime is asked for by name and not installed.
    """
    what, asked = network.called, f"{network.setting}={backend}"
    if backend == "torch" or not texts:
        return network.exact
    if not installed():
        if backend != "auto":
            raise AnmiError(f'{asked} needs ONNX Runtime: pip install "anmi[onnx]", or set torch')
        log.info("ONNX Runtime is not installed, so the %s is run by torch; anmi[onnx] would be measured", what)
        return network.exact
    kept = models / "backends" / f"{_key(network, backend)}.json"
    if device() != "cpu" or not (kept.exists() or is_exportable(network.open())):
        if backend != "auto":
            log.warning("%s is for one transformer on a processor; this %s runs by torch", asked, what)
        return network.exact
    if not kept.exists():
        measured = _measure(network, _sample(texts), backend)
        with aside(kept) as file:
            file.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))
    log.info("The %s is run by %s (%s)", what, found["chosen"], found["because"])
    return str(found["chosen"])


def _sample(texts: Sequence[str]) -> list[str]:
    """Take texts of all lengths, at even distances."""
    ordered = sorted(set(texts), key=lambda text: (len(text), text))
    places = np.unique(np.linspace(0, len(ordered) - 1, min(SAMPLE, len(ordered))).astype(int))
    return [ordered[place] for place in places]


def _key(network: Network, backend: Backend) -> str:
    """Return a hash of what a measurement depends on: the model, the processor and the versions."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") if Path("/proc/cpuinfo").exists() else ""
    flags = re.search(r"^flags\s*:(.*)$", cpu, re.MULTILINE)
    known = " ".join(sorted(flags.group(1).split())) if flags else platform.machine()
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime", "onnx", "transformers")]
    return hash_text("\n".join([network.fingerprint, backend, known, *versions]))


def _measure(network: Network, texts: list[str], backend: Backend) -> dict[str, Any]:
    """Run the sample in all ways that may be chosen, and choose."""
    model, exact = network.open(), network.exact
    reference = network.compute(model, texts, "float32")
    ways: tuple[str, ...] = (exact, *WAYS) if backend == "auto" else (_WAYS[backend], exact)
    rates: dict[str, float] = {}
    near: dict[str, Nearness] = {}
    for way in ways:
        try:
            # What is made at the first use is not measured.
            network.compute(model, texts[:1], way)
            # Per second of the processor: what else runs on the machine must not choose.
            start = time.process_time()
            found = network.compute(model, texts, way)
            rates[way] = len(texts) / max(time.process_time() - start, 1e-6)
        except AnmiError as error:
            log.warning("%s; the %s is run by torch", error, network.called)
            continue
        near[way] = network.compare(found, reference)
        if not near[way].good and way != exact:
            log.warning("By %s the %s is too far from torch (%s), so it is not used", way, network.called, near[way])
    good = [way for way in rates if way == exact or near[way].good]
    if backend == "auto":
        chosen = max(good, key=lambda way: rates[way] if way != exact else rates[way] * _WORTH)
    else:
        chosen = good[0]
    said = ", ".join(f"{way} {rates[way]:.1f}" for way in rates)
    return {
        "chosen": chosen,
        "because": f"{network.counted} per processor second: {said}",
        "measured": {way: {"rate": rates[way], **near[way]._asdict()} for way in rates},
    }
