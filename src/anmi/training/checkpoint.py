"""Checkpoints on disk: which training one belongs to, writing it whole, and verifying it before it is loaded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from anmi.errors import AnmiError
from anmi.fingerprint import hash_file, hash_text, hash_value
from anmi.retrieval.encoders import fingerprint
from anmi.training.failures import NotFiniteError
from anmi.training.options import TrainingOptions

log = logging.getLogger(__name__)

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
# When and how often checkpoints are made changes no weight.
WITHOUT_EFFECT: Final = frozenset({"checkpoint_minutes", "checkpoint_steps", "checkpoints_kept"})
# What one may want to change when a training is to go on after it failed; the batches and the steps stay the same.
CHANGEABLE: Final = frozenset({
    "learning_rate", "max_grad_norm", "max_length", "negatives", "precision", "recompute", "texts_per_pass",
    "weight_decay",
})  # fmt: skip
_NAME: Final = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class CheckpointPlan:
    """Where the checkpoints of trainings lie, and what to do with those that are there.

    Attributes
    ----------
    folder
        Holds one folder per training that has not finished, named by the fingerprint of what determines its result.
    resume
        Go on from the newest good checkpoint of the very same training; False removes its checkpoints.
    start
        A checkpoint to go on from, whose training may have had other values of the options in :data:`CHANGEABLE`.
    facts
        Anything else that belongs to the training, by name: recipe, encoder, dev queries. A training of other facts is
        another training.
    """

    folder: Path
    resume: bool = True
    start: Path | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def identity(
    rows: pd.DataFrame, encoder: Any, options: TrainingOptions, seed: int, facts: Mapping[str, str]
) -> dict[str, Any]:
    """Return what determines the result of a training, as plain JSON values."""
    chosen = {name: value for name, value in options.model_dump(mode="json").items() if name not in WITHOUT_EFFECT}
    return {
        "facts": dict(facts),
        "rows": digest_table(rows),
        "encoder": fingerprint(encoder),
        "seed": seed,
        "options": json.loads(json.dumps(chosen)),
        "started_from": None,
    }


def digest_table(table: pd.DataFrame) -> str:
    """Return a hash of the values of a table, whatever made it.

    Examples
    --------
    >>> digest_table(pd.DataFrame({"a": [["x"]]})) == digest_table(pd.DataFrame({"a": [("x",)]}))
    True
    """
    state = hashlib.blake2b(digest_size=16)
    content = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema) as stream:
        stream.write_table(content)
    state.update(memoryview(sink.getvalue()))
    return state.hexdigest()


def digest_tables(tables: Iterable[pd.DataFrame]) -> str:
    """Return a hash of the values of several tables in their order."""
    return hash_text("".join(digest_table(table) for table in tables))


def differences(saved: Mapping[str, Any], wanted: Mapping[str, Any], changeable: frozenset[str]) -> list[str]:
    """Return in words what tells two trainings apart, options that are ``changeable`` left out.

    Examples
    --------
    >>> one = {"facts": {"recipe": "anmi"}, "rows": "a", "encoder": "b", "seed": 1, "options": {"epochs": 5}}
    >>> differences(one, one | {"seed": 2, "options": {"epochs": 3}}, frozenset())
    ['option epochs is 5 there and 3 here', 'seed is 1 there and 2 here']
    """
    found = _different("", saved["facts"], wanted["facts"])
    options = [
        {name: value for name, value in side["options"].items() if name not in changeable} for side in (saved, wanted)
    ]
    found += _different("option ", *options)
    found += _different("", {"seed": saved["seed"]}, {"seed": wanted["seed"]})
    found += [text for key, text in _UNSEEN.items() if saved[key] != wanted[key]]
    return found


_UNSEEN: Final = {"rows": "the training rows differ", "encoder": "the encoder's weights or settings differ"}


def _different(kind: str, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    names = [name for name in {**saved, **wanted} if saved.get(name) != wanted.get(name)]
    # Digests say nothing to people.
    return [
        f"{kind}{name} differ"
        if re.fullmatch(r"[0-9a-f]{32}", str(wanted.get(name)))
        else f"{kind}{name} is {_shown(saved.get(name))} there and {_shown(wanted.get(name))} here"
        for name in names
    ]


def _shown(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)


class Checkpoints:
    """The checkpoints of one training; a context in which no other process makes any of the same training.

    Parameters
    ----------
    plan
        Where they lie.
    wanted
        The training's :func:`identity`.
    keep
        Checkpoints to keep; older ones are removed when a new one is complete.
    """

    def __init__(self, plan: CheckpointPlan, wanted: dict[str, Any], keep: int) -> None:
        self._plan = plan
        self._keep = keep
        self._given: Path | None = None
        self.owned = False
        self.identity = wanted
        if plan.start is not None:
            self._given = plan.start
            self.identity = wanted | {"started_from": self._accept(plan.start)}
        self.folder = plan.folder / hash_value(self.identity, 12)

    def _accept(self, start: Path) -> str | None:
        """Refuse a checkpoint of another training; return what to call this one's start, None for its own."""
        manifest = verify(start)
        wrong = differences(manifest["identity"], self.identity, CHANGEABLE)
        if wrong:
            raise AnmiError(
                f"The checkpoint {start} is of another training ({'; '.join(wrong[:4])}): run what it belongs to, or "
                "leave `training.checkpoint` out to train from the beginning."
            )
        same = manifest["identity"] | {"started_from": None} == self.identity
        earlier: str | None = manifest["identity"]["started_from"]
        return earlier if same else hash_file(start / MANIFEST, "sha256")[:32]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from the same training's checkpoints; ``owned`` is False where one has them already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "lock")
        try:
            lock.acquire(timeout=0)
            self.owned = True
        except (Timeout, OSError, NotImplementedError):
            self.owned = False
        if not self.owned:
            log.warning("Another process makes the checkpoints of this training; this one makes none")
        try:
            yield
        finally:
            lock.release()

    def begin(self) -> Path | None:
        """Return the verified checkpoint to go on from, or None, and tidy away what is not needed."""
        if not self.owned:
            return self._given
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if self._given is not None and self._given.resolve().parent == self.folder.resolve():
            # The user goes back to it; what came after it is to be made again.
            self._forget(after=number(self._given))
            return self._given
        if not self._plan.resume:
            self._forget()
            return self._given
        for path in self._all():
            try:
                verify(path)
            except AnmiError as error:
                log.warning("A checkpoint is passed over: %s", error)
                shutil.rmtree(path, ignore_errors=True)
            else:
                log.info("Going on from step %d in %s; training.resume=false would start anew", number(path), path)
                return path
        return self._given

    def newest(self) -> Path | None:
        """Return the newest checkpoint, this training's own or the one it started from."""
        return next(iter(self._all()), self._given)

    def write(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], values: Mapping[str, Any]) -> Path:
        """Write a checkpoint aside, and make it appear when it is whole.

        Raises
        ------
        NotFiniteError
            A number is not finite: such a checkpoint would be of no use.
        OSError
            It cannot be written.
        """
        check_finite(tensors)
        path, aside = self.folder / f"step-{step:08d}", self.folder / f".step-{step:08d}-{os.getpid()}"
        aside.mkdir(parents=True)
        try:
            for name, group in tensors.items():
                # A copy of each, since safetensors refuses tensors that share memory.
                save_file(
                    {key: t.detach().to("cpu", copy=True).contiguous() for key, t in group.items()},
                    aside / f"{name}.safetensors",
                )
            for name, value in values.items():
                (aside / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
            files = {file.name: hash_file(file, "sha256") for file in sorted(aside.iterdir())}
            manifest = {
                "format": FORMAT,
                "step": step,
                "identity": self.identity,
                "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
                "files": files,
            }
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            shutil.rmtree(path, ignore_errors=True)
            aside.rename(path)
        except SafetensorError as error:
            # How it calls a full disk.
            raise OSError(str(error)) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        for old in self._all()[self._keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def remove(self) -> None:
        """Remove the training's checkpoints: it is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _all(self) -> list[Path]:
        """The training's checkpoints, newest first."""
        return sorted((path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name)), reverse=True)

    def _forget(self, after: int = -1) -> None:
        for path in self._all():
            if number(path) > after:
                shutil.rmtree(path, ignore_errors=True)


def number(path: Path) -> int:
    """Return the number of steps after which a checkpoint was made.

    Examples
    --------
    >>> number(Path("x/step-00000040"))
    40
    """
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else int(read_manifest(path)["step"])


def read_manifest(path: Path) -> dict[str, Any]:
    """Return what a checkpoint says of itself.

    Raises
    ------
    AnmiError
        It says nothing, or in a form of another release.
    """
    file = path / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found = manifest["format"], manifest["files"], manifest["identity"], manifest["step"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise AnmiError(
            f"{path} is no checkpoint: its {MANIFEST} is missing or damaged; give a folder such as "
            "<store>/checkpoints/<training>/step-00000040, or leave `training.checkpoint` out."
        ) from error
    if found[0] != FORMAT:
        raise AnmiError(
            f"The checkpoint {path} has format {found[0]} and this release reads format {FORMAT}: "
            "train from the beginning, or use the release that made it."
        )
    return manifest


def verify(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint whose files are all as they were written.

    Raises
    ------
    AnmiError
        It is no checkpoint, or a file is missing or damaged.
    """
    manifest = read_manifest(path)
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file() or hash_file(file, "sha256") != expected:
            raise AnmiError(
                f"{file} is {'damaged' if file.is_file() else 'missing'} (its SHA-256 is not the one in {MANIFEST}): "
                "go on from an older checkpoint, or train from the beginning."
            )
    return manifest


def check_finite(tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Raise a NotFiniteError where a number is NaN or infinite."""
    for group, members in tensors.items():
        for name, tensor in members.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise NotFiniteError(
                    f"The weights became NaN or infinite (first: {name} of the {group}), although the loss and its "
                    "gradient were finite; lower the learning rate."
                )


def read(path: Path, device: torch.device | str) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors and the values of a verified checkpoint, by name of the file without its suffix."""
    tensors = {file.stem: load_file(file, device=str(device)) for file in path.glob("*.safetensors")}
    values = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in path.glob("*.json") if file.name != MANIFEST
    }
    return tensors, values
