"""What ``kedro anmi doctor`` looks at; a check returns findings, and an error of one is a finding as well."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import click

from anmi.errors import AnmiError, masked

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
# By extra its packages, and what they are for; `test` is for developers.
EXTRAS: Final = {
    "korean": ("kiwipiepy", "cuts Korean texts into words"),
    "chinese": ("jieba", "cuts Chinese texts into words"),
    "code-mix": ("wordfreq", "tells the languages of mixed texts apart, for the heuristic of hardness"),
    "ir-datasets": ("ir_datasets", "reads collections of the ir_datasets catalogue"),
    "pdf": ("pypdf", "reads PDF files"),
    "rdf": ("rdflib", "reads graphs in RDF"),
    "onnx": ("onnxruntime", "runs encoders in 8 bits, or by ONNX Runtime where that is faster"),
    "s3": ("s3fs", "keeps artifacts in a bucket"),
    "ray": ("ray", "mines on a Ray cluster"),
    "serve": ("fastapi", "serves the page to look at a run and to mark"),
    "notebooks": ("ipykernel", "runs the notebooks"),
    "docs": ("mkdocs-material", "builds the documentation as a site"),
}
_LOCKED: Final = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
_PYTHONS: Final = ((3, 11), (3, 12))
# Bytes free below which there is too little room for a run, and none at all.
_LITTLE: Final = 2_000_000_000
_NOTHING: Final = 200_000_000
# Measured, docs/scale.md: passages of 75 tokens that MiniLM encodes, and pairs that the cross-encoder is trained for
# and reads, both in a second of one core.
_ENCODED: Final = 62
_JUDGED: Final = 57
_SLOW_MINUTES: Final = 10


@dataclass(frozen=True)
class Finding:
    """What was found: ``ok``, a ``warning`` (a run works) or a ``problem`` (it would not), and what to do about it."""

    name: str
    level: str
    text: str
    todo: str = ""
    section: str = ""


Check = Callable[[Any], Iterator[Finding]]


def examine(env: str | None) -> list[Finding]:
    """Look at everything; without a configuration that can be read, at what needs none."""
    from anmi.cli.common import project

    found = [*_tried("environment", environment, None), *_tried("extras", extras, None)]
    try:
        with project(env) as context:
            found.append(Finding("parameters", OK, f"those of {env or 'local'} are valid", section="configuration"))
            for section, check in CHECKS.items():
                found += _tried(section, check, context)
    except click.ClickException as error:
        todo = "correct it there, or write conf/local anew by `kedro anmi init --force`"
        found.append(Finding("parameters", PROBLEM, error.message, todo, "configuration"))
    return found


def _tried(section: str, check: Check, context: Any) -> list[Finding]:
    """Return what a check finds; one that fails is a problem, and the others go on."""
    found: list[Finding] = []
    try:
        found.extend(check(context))
    except Exception as error:
        said = f"{'' if isinstance(error, AnmiError) else type(error).__name__ + ': '}{' '.join(str(error).split())}"
        found.append(Finding(section, PROBLEM, masked(said)[:600]))
    return [replace(finding, section=finding.section or section) for finding in found]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(_: Any) -> Iterator[Finding]:
    """Look at Python, the packages, the device and the threads."""
    here = sys.version_info
    good = here[:2] in _PYTHONS
    known = " and ".join(f"{major}.{minor}" for major, minor in _PYTHONS)
    todo = "" if good else f"only {known} are tested: make .venv with one of them"
    yield Finding("Python", OK if good else WARNING, ".".join(map(str, here[:3])), todo)
    yield _packages(Path.cwd() / "requirements.lock")
    import torch

    if torch.cuda.is_available():
        yield Finding("device", OK, f"{torch.cuda.get_device_name()}, for models and training")
    else:
        yield Finding("device", OK, "no GPU that torch can use: models run on the processor")
    threads, there = torch.get_num_threads(), cores()
    crowded = threads > there
    todo = f"set OMP_NUM_THREADS={there}: more threads than cores wait for each other" if crowded else ""
    yield Finding("threads", WARNING if crowded else OK, f"{threads} of torch on {there} cores", todo)


def _packages(lock: Path) -> Finding:
    if not lock.is_file():
        return Finding("packages", OK, "installed without a lock file, so not compared")
    locked = dict(_LOCKED.findall(lock.read_text(encoding="utf-8")))
    there = {name: _version(name) for name in locked}
    gone = [name for name, version in there.items() if version is None]
    # What follows a plus says how a package was built: torch for processors is 2.6.0+cpu.
    other = [f"{n} {v}" for n, v in there.items() if v and v.split("+")[0] != locked[n].split("+")[0]]
    if gone:
        todo = "make install (or pip install -r requirements.lock)"
        return Finding("packages", PROBLEM, f"not installed: {', '.join(gone[:8])}", todo)
    if other:
        text = f"{len(other)} of {len(locked)} are not those of requirements.lock: {', '.join(other[:5])}"
        return Finding("packages", WARNING, text, "make install, or results may differ in the last digits")
    return Finding("packages", OK, f"all {len(locked)} are those of requirements.lock")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def extras(_: Any) -> Iterator[Finding]:
    """Look at which optional packages are installed."""
    for name, (package, purpose) in EXTRAS.items():
        there = _version(package) is not None
        todo = "" if there else f'if you want it: pip install "anmi[{name}]"'
        yield Finding(name, OK, f"{purpose}: {'installed' if there else 'not installed'}", todo)


def models(context: Any) -> Iterator[Finding]:
    """Look at the packaged MiniLM, the encoder and the cross-encoder."""
    from anmi.cli.common import store_path
    from anmi.retrieval.encoders import MINILM_SHA256, NAMES, STATIC_DIMENSIONS, minilm_folder, verify

    weights = minilm_folder() / "model.safetensors"
    verify(weights, MINILM_SHA256)
    yield Finding("MiniLM", OK, f"packaged, its weights as they should be: {weights.parent}")
    distilled = store_path(context) / "models" / f"static-{STATIC_DIMENSIONS}-{MINILM_SHA256[:12]}"
    text = (
        f"distilled: {distilled}"
        if distilled.is_dir()
        else "not distilled yet: its first use does it, once, in a minute"
    )
    yield Finding("static encoder", OK, text)
    judge = context.params["denoising"].cross_encoder
    for name, asked in (("encoder", str(context.params["encoder"])), ("cross-encoder", str(judge.base))):
        if asked in NAMES:
            trained = ", trained anew by recipes that ask it" if name == "cross-encoder" and judge.trained else ""
            yield Finding(name, OK, asked + trained)
        else:
            yield _other_model(name, asked)


def _other_model(name: str, asked: str) -> Finding:
    """Look at a model that is not packaged; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    from anmi.retrieval.model_folder import check_folder, is_folder

    if is_folder(asked):
        check_folder(Path(asked), asked)
        return Finding(name, OK, f"the folder {asked}")
    if isinstance(try_to_load_from_cache(asked, "config.json"), str):
        return Finding(name, OK, f"{asked}, fetched from the hub before")
    if os.environ.get("ANMI_ONLINE"):
        return Finding(name, WARNING, f"{asked} is not here: the run fetches it from the hub")
    todo = "set ANMI_ONLINE=1 for one run, which fetches it, or name a folder"
    return Finding(name, PROBLEM, f"{asked} is not here, and downloads are not allowed", todo)


def data(context: Any) -> Iterator[Finding]:
    """Read the configured collection, and say what takes long with it here."""
    from anmi.cli.described import counts, describe, remarks

    collection = str(context.params["collection"])
    if collection.startswith("ir_datasets:"):
        todo = f"kedro anmi collections {collection}"
        yield Finding("collection", OK, f"{collection} is not read here, since its first use downloads it", todo)
        return
    found = describe(collection, context.params["ingestion"], int(context.params["seed"]))
    yield Finding("collection", OK, f"{collection}: {counts(found)}")
    yield from (Finding("collection", WARNING, remark) for remark in remarks(found))
    yield from (replace(finding, section="what is slow here") for finding in slow(context.params, found))


def slow(params: Any, found: Any) -> Iterator[Finding]:
    """Say what takes long without a GPU, by rule: rates of one core, measured, times the cores here."""
    import torch

    from anmi.cli.recipes import needs
    from anmi.pipelines.training.params import merged_options

    recipe = params["recipes"].get(params["recipe"])
    options = merged_options(recipe, params["training"])
    if torch.cuda.is_available():
        yield Finding("models", OK, "nothing: they run on the GPU")
        return
    if options.masked_lm is not None:
        text = f"{params['recipe']} trains a masked language model, which wants a GPU, and none is here"
        yield Finding("recipe", WARNING, text, "recipe=sparse trains without one")
    queries = min(found["queries"]["train"], params["ingestion"].max_queries or found["queries"]["train"])
    if params["encoder"] == "static":
        yield Finding("encoder", OK, "nothing: static looks tokens up, thousands of texts in a second")
    else:
        texts, rows = found["documents"] + sum(found["queries"].values()), queries * (2 + (options.negatives or 0))
        yield _takes("encoding", f"{texts:,} texts by a network of MiniLM's size", texts / _ENCODED, "encoder=static")
        # A step forward and back takes about three forward.
        seconds = 3 * options.epochs * rows / _ENCODED
        yield _takes("training", f"{options.epochs} epochs of {queries:,} queries", seconds, "encoder=static, or a GPU")
    if any("cross-encoder" in each for each in needs(recipe, options)):
        pairs = queries * params["denoising"].depth
        yield _takes("cross-encoder", f"{pairs:,} pairs", pairs / _JUDGED, "recipe=anmi asks no cross-encoder")


def _takes(name: str, what: str, seconds: float, instead: str) -> Finding:
    minutes = seconds / cores() / 60
    text = f"{what}: about {minutes:,.0f} minutes on {cores()} cores" if minutes >= 1 else f"{what}: under a minute"
    long = minutes > _SLOW_MINUTES
    return Finding(name, WARNING if long else OK, text, instead if long else "")


def tracking(context: Any) -> Iterator[Finding]:
    """Ask the tracking store for its experiments; a database that is not there yet is not made."""
    from anmi.datasets.model_registry import connect
    from anmi.runs.record import data_root
    from anmi.runs.tracking import quiet, read_settings, tracking_uri

    settings = read_settings(context)
    if not settings.enabled:
        yield Finding("MLflow", OK, "switched off in mlflow.yml")
        return
    uri = tracking_uri(settings, data_root(context))
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        yield Finding("MLflow", OK, f"{uri}: the first run makes it")
        return
    # A doctor does not wait as long as a run does.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    try:
        with quiet():
            count = len(connect(uri).search_experiments())
    except Exception as error:
        todo = "check MLFLOW_TRACKING_URI and that the server runs, or set `enabled: false` in conf/local/mlflow.yml"
        if uri.startswith("sqlite:///"):
            todo = "move the file aside, the next run makes another: a run may have been stopped while it made this one"
        yield Finding("MLflow", PROBLEM, f"{masked(uri)} cannot be reached ({type(error).__name__})", todo)
    else:
        yield Finding("MLflow", OK, f"{masked(uri)}: {count} experiment{'s' * (count != 1)}")


def disk(context: Any) -> Iterator[Finding]:
    """Look at the store, the room on the disks, and what processes that have ended left behind."""
    from anmi.cli.common import size_text, store_path
    from anmi.runs.record import data_root

    root, store = data_root(context), store_path(context).absolute()
    file = store / "data.mdb"
    text = f"{store}: {size_text(file.stat().st_blocks * 512)}" if file.exists() else f"{store}: the first run makes it"
    yield Finding("store", OK, text)
    for name, place in (("data root", root), ("store", str(store))):
        if "://" not in place:
            yield _room(name, Path(place))
    yield from _left_behind(context, root, store)


def _room(name: str, place: Path) -> Finding:
    from anmi.cli.common import size_text

    there = next(folder for folder in (place, *place.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    level = PROBLEM if free < _NOTHING else WARNING if free < _LITTLE else OK
    todo = "" if level == OK else "kedro anmi prune --keep 3 and kedro anmi store prune make room"
    if not os.access(there, os.W_OK):
        return Finding(
            "store and disk", f"room for the {name}", PROBLEM, f"{there} cannot be written to", "see its owner"
        )
    return Finding(f"room for the {name}", level, f"{size_text(free)} free under {place}", todo)


def _left_behind(context: Any, root: str, store: Path) -> Iterator[Finding]:
    from anmi.hooks.retraining import LOCK
    from anmi.locks import is_held
    from anmi.runs.manifests import UNFINISHED, Runs
    from anmi.runs.prune import plan

    known = Runs(root)
    runs = known.all()
    left = [item for item in plan(known, runs, [run["run_id"] for run in runs], []) if item.kind == "leftover"]
    if left:
        text = f"{len(left)} unfinished files or folders of processes that have ended"
        yield Finding("leftovers", WARNING, text, "kedro anmi prune --keep N removes them")
    if runs and runs[-1]["status"] in UNFINISHED:
        text = f"the last run, {runs[-1]['run_id']}, was {runs[-1]['status']}"
        yield Finding("runs", WARNING, text, "kedro anmi resume goes on with it")
    elif runs:
        yield Finding("runs", OK, f"{len(runs)}, the last of them {runs[-1]['status']}")
    # A lock ends with its process: one that is held is held by a process that lives.
    held = is_held(store / LOCK)
    if held:
        yield Finding("locks", WARNING, "a retraining is under way", "wait for it before another")
    else:
        yield Finding("locks", OK, "none is held; a lock ends with its process")


CHECKS: Final[dict[str, Check]] = {
    "models": models, "data": data, "tracking": tracking, "store and disk": disk,
}  # fmt: skip
