"""``kedro anmi doctor``: is all there that a run needs, and what to do about what is not."""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from anmi.cli.common import command
from anmi.errors import AnmiError, masked, visible

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
_FEW_QUERIES: Final = 50


class Finding(NamedTuple):
    """A fact that is ``ok``, a ``warning`` (a run works) or a ``problem`` (it does not)."""

    name: str
    level: str
    text: str
    todo: str = ""


@command("kedro anmi doctor", short_help="Check everything that a run needs, and say what to do.")
def doctor(context: Any) -> Any:
    """Check device, models, data and tracking, and say how to solve each problem.

    This reads the configured collection. The exit code is 1 if there is a problem; warnings do not
    count.
    """
    findings = [Finding("Python", OK, platform.python_version())]
    # Reading a collection logs.
    with redirect_stdout(io.StringIO()):
        for name, check in CHECKS.items():
            try:
                findings.extend(check(context))
            except Exception as error:
                kind = "" if isinstance(error, AnmiError) else f"{type(error).__name__}: "
                message = " ".join(f"{kind}{error}".split())
                findings.append(Finding(name, PROBLEM, masked(message)[:600]))
    for finding in findings:
        click.echo(visible(f"{finding.level:<8} {finding.name}: {finding.text}"))
        if finding.todo:
            click.echo(visible(f"{'':<9}→ {finding.todo}"))
    is_good = all(finding.level != PROBLEM for finding in findings)
    click.echo(f"\nnext: {'kedro run' if is_good else 'do what the arrows say, and ask again'}")
    return {"ok": is_good, "findings": [finding._asdict() for finding in findings]}


def device(_: Any) -> Iterator[Finding]:
    """Look for a GPU."""
    import torch

    has_gpu = torch.cuda.is_available()
    text = torch.cuda.get_device_name() if has_gpu else "no GPU that torch can use: the processor"
    yield Finding("device", OK, text)


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
    roles = [("encoder", str(context.params["encoder"]))]
    roles += [("cross-encoder", name) for name in context.params["denoising"].cross_encoder.models]
    for role, model in roles:
        if is_folder(model):
            check_folder(Path(model), model)
        is_local = model in ENCODERS or is_folder(model)
        if is_local or isinstance(try_to_load_from_cache(model, "config.json"), str):
            yield Finding(role, OK, f"{model} is here")
        elif os.environ.get("ANMI_ONLINE"):
            yield Finding(role, WARNING, f"{model} is not here: the run fetches it from the hub")
        else:
            todo = "set ANMI_ONLINE=1 for one run, which fetches it, or name a folder"
            text = f"{model} is not here, and downloads are not allowed"
            yield Finding(role, PROBLEM, text, todo)


def data(context: Any) -> Iterator[Finding]:
    """Read the configured collection, unless its first use would download it, and count."""
    from anmi.corpus.sources import load_collection

    collection = str(context.params["collection"])
    if collection.startswith("ir_datasets:"):
        text = f"{collection} is not read here, since its first use downloads it"
        yield Finding("collection", OK, text)
        return
    params = context.params["ingestion"]
    loaded = load_collection(
        collection,
        seed=int(context.params["seed"]),
        dev_share=params.dev_share,
        test_share=params.test_share,
        language=params.language,
    )
    queries = {
        split: int((loaded.queries["split"] == split).sum()) for split in ("train", "dev", "test")
    }
    counts = ", ".join(f"{count:,} {split}" for split, count in queries.items())
    text = (
        f'{collection}: {len(loaded.corpus):,} documents in "{loaded.language}", queries: {counts}'
    )
    yield Finding("collection", OK, text)
    caps = {"ingestion.max_queries": params.max_queries}
    if collection == "api_docs":
        caps["ingestion.api_docs_queries"] = params.api_docs_queries
    for name, cap in caps.items():
        if 0 < cap < queries["train"]:
            text = f"a run takes {cap:,} of the {queries['train']:,} training queries ({name})"
            yield Finding("collection", OK, text)
    if not queries["train"]:
        text = (
            "no training query has a label: nothing is mined, and training rests on pseudo-queries"
        )
        yield Finding("collection", WARNING, text)
    small = [split for split in ("dev", "test") if queries[split] < _FEW_QUERIES]
    if small:
        sizes = " and ".join(f"{split} has {queries[split]}" for split in small)
        text = f"{sizes} queries: with fewer than {_FEW_QUERIES} trust no interval"
        yield Finding("collection", WARNING, text)


def tracking(context: Any) -> Iterator[Finding]:
    """Ask the tracking store for its experiments; a database that is not there yet is not made."""
    from anmi.datasets.model_registry import connect
    from anmi.hooks.mlflow import quiet, tracked_at

    uri = tracked_at(context)
    if not uri:
        yield Finding("MLflow", OK, "switched off in mlflow.yml")
        return
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        yield Finding("MLflow", OK, f"{uri}: the first run makes it")
        return
    try:
        with quiet():
            count = len(connect(uri).search_experiments())
    except Exception as error:
        todo = (
            "check MLFLOW_TRACKING_URI and that the server runs, or set `enabled: false` in"
            " conf/local/mlflow.yml"
        )
        text = f"{masked(uri)} cannot be reached ({type(error).__name__})"
        yield Finding("MLflow", PROBLEM, text, todo)
    else:
        yield Finding("MLflow", OK, f"{masked(uri)}: {count} experiment{'s' * (count != 1)}")


CHECKS: Final[dict[str, Callable[[Any], Iterator[Finding]]]] = {
    "device": device,
    "models": models,
    "data": data,
    "MLflow": tracking,
}
