"""``kedro anmi doctor``: is everything there that a run needs, and what to do about what is not."""

from __future__ import annotations

import io
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from anmi.cli.common import command, store_path
from anmi.errors import AnmiError, masked, visible

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
# Bytes free below which there is too little room for a run, and none at all.
_LITTLE: Final = 2_000_000_000
_NOTHING: Final = 200_000_000


class Finding(NamedTuple):
    """What was found: ``ok``, a ``warning`` (a run works) or a ``problem`` (it would not), and what to do about it."""

    name: str
    level: str
    text: str
    todo: str = ""


@command("kedro anmi doctor", short_help="Check everything that a run needs, and say what to do.")
def doctor(context: Any) -> Any:
    """Check environment, models, data, tracking and disk, and say how to solve each problem.

    This reads the configured collection. The exit code is 1 if there is a problem; warnings do not
    count.
    """
    findings = [Finding("Python", OK, platform.python_version())]
    # What is read is logged, too.
    with redirect_stdout(io.StringIO()):
        for name, check in CHECKS.items():
            try:
                findings.extend(check(context))
            except Exception as error:
                # The others go on.
                kind = "" if isinstance(error, AnmiError) else f"{type(error).__name__}: "
                findings.append(
                    Finding(name, PROBLEM, masked(kind + " ".join(str(error).split()))[:600])
                )
    for finding in findings:
        click.echo(visible(f"{finding.level:<8} {finding.name}: {finding.text}"))
        if finding.todo:
            click.echo(visible(f"{'':<9}→ {finding.todo}"))
    good = all(finding.level != PROBLEM for finding in findings)
    click.echo(f"\nnext: {'kedro run' if good else 'do what the arrows say, and ask again'}")
    return {"ok": good, "findings": [finding._asdict() for finding in findings]}


def device(_: Any) -> Iterator[Finding]:
    """Look for a GPU."""
    import torch

    gpu = torch.cuda.is_available()
    yield Finding(
        "device",
        OK,
        torch.cuda.get_device_name() if gpu else "no GPU that torch can use: the processor",
    )


def models(context: Any) -> Iterator[Finding]:
    """Look at the packaged MiniLM, the encoder and the cross-encoder; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    from anmi.hooks.checks import ENCODERS
    from anmi.retrieval.model_folder import (
        MINILM_SHA256,
        check_folder,
        is_folder,
        minilm_folder,
        verify,
    )

    verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    yield Finding("MiniLM", OK, "packaged, its weights as they should be")
    cross_encoders = context.params["denoising"].cross_encoder.models
    models = [
        ("encoder", str(context.params["encoder"])),
        *(("cross-encoder", model) for model in cross_encoders),
    ]
    for name, model in models:
        if is_folder(model):
            check_folder(Path(model), model)
        if (
            model in ENCODERS
            or is_folder(model)
            or isinstance(try_to_load_from_cache(model, "config.json"), str)
        ):
            yield Finding(name, OK, f"{model} is here")
        elif os.environ.get("ANMI_ONLINE"):
            yield Finding(name, WARNING, f"{model} is not here: the run fetches it from the hub")
        else:
            todo = "set ANMI_ONLINE=1 for one run, which fetches it, or name a folder"
            yield Finding(
                name, PROBLEM, f"{model} is not here, and downloads are not allowed", todo
            )


def data(context: Any) -> Iterator[Finding]:
    """Read the configured collection, unless its first use would download it, and count."""
    collection = str(context.params["collection"])
    if collection.startswith("ir_datasets:"):
        yield Finding(
            "collection", OK, f"{collection} is not read here, since its first use downloads it"
        )
        return
    from anmi.corpus.sources import load_collection

    params = context.params["ingestion"]
    shares = {
        "dev_share": params.dev_share,
        "test_share": params.test_share,
        "language": params.language,
    }
    loaded = load_collection(collection, seed=int(context.params["seed"]), **shares)
    queries = {
        split: int((loaded.queries["split"] == split).sum()) for split in ("train", "dev", "test")
    }
    counts = ", ".join(f"{count:,} {split}" for split, count in queries.items())
    text = (
        f'{collection}: {len(loaded.corpus):,} documents in "{loaded.language}", queries: {counts}'
    )
    yield Finding("collection", OK, text)
    if not queries["train"]:
        warning = (
            "no training query has a label: nothing is mined, and training rests on pseudo-queries"
        )
        yield Finding("collection", WARNING, warning)
    if small := [
        f"{split} has {queries[split]}" for split in ("dev", "test") if queries[split] < 50
    ]:
        yield Finding(
            "collection",
            WARNING,
            f"{' and '.join(small)} queries: with fewer than 50 trust no interval",
        )


def tracking(context: Any) -> Iterator[Finding]:
    """Ask the tracking store for its experiments; a database that is not there yet is not made."""
    from anmi.datasets.model_registry import connect
    from anmi.hooks.mlflow import quiet, tracked_at

    uri = tracked_at(context)
    if not uri or (
        uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists()
    ):
        yield Finding(
            "MLflow", OK, f"{uri}: the first run makes it" if uri else "switched off in mlflow.yml"
        )
        return
    try:
        with quiet():
            count = len(connect(uri).search_experiments())
    except Exception as error:
        todo = (
            "check MLFLOW_TRACKING_URI and that the server runs, or set `enabled: false` in"
            " conf/local/mlflow.yml"
        )
        yield Finding(
            "MLflow", PROBLEM, f"{masked(uri)} cannot be reached ({type(error).__name__})", todo
        )
    else:
        yield Finding("MLflow", OK, f"{masked(uri)}: {count} experiment{'s' * (count != 1)}")


def disk(context: Any) -> Iterator[Finding]:
    """Look at the room on the disks."""
    from anmi.hooks.record import data_root

    for name, place in (
        ("data root", data_root(context)),
        ("store", str(store_path(context).absolute())),
    ):
        if "://" in place:
            continue
        folder_there = next(
            folder for folder in (Path(place), *Path(place).parents) if folder.exists()
        )
        free = shutil.disk_usage(folder_there).free
        level = PROBLEM if free < _NOTHING else WARNING if free < _LITTLE else OK
        if not os.access(folder_there, os.W_OK):
            yield Finding(
                f"room for the {name}",
                PROBLEM,
                f"{folder_there} cannot be written to",
                "see its owner",
            )
            continue
        todo = "" if level == OK else "kedro anmi prune --keep 3 makes room"
        yield Finding(
            f"room for the {name}", level, f"{free / 1e9:.1f} GB free under {place}", todo
        )


CHECKS: Final[dict[str, Callable[[Any], Iterator[Finding]]]] = {
    "device": device,
    "models": models,
    "data": data,
    "MLflow": tracking,
    "disk": disk,
}
