"""Each run leaves a record, ``<data>/runs/<run id>/run.json``; this module reads and writes it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from anmi import buckets
from anmi.datasets.artifact import record_of
from anmi.errors import (
    DISTRIBUTION,
    AnmiError,
    each_text,
    holds_address_secret,
    masked,
    nearest,
    secrets_of_environment,
)
from anmi.files import is_held, plain
from anmi.fingerprint import hash_value

FILE: Final = "run.json"
LOCK: Final = "lock"
VERSION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d\.\d{3}Z")
UNFINISHED: Final = ("killed", "failed", "interrupted")
# Nothing is locked in a bucket: a run that has written nothing for so long counts as killed.
_SILENT: Final = timedelta(days=1)


@dataclass
class RunRecord:
    """One run, as ``run.json`` describes it.

    Attributes
    ----------
    status
        ``running``, ``finished``, ``failed`` or ``interrupted``.
    failed_at
        The node that was running then.
    filters
        Options that chose among the nodes of the pipelines.
    loaded, saved
        By dataset: ``version`` and, if known, ``digest``; what was saved also has ``files`` and
        ``bytes``.
    nodes
        Each with ``node, stage, end, seconds, peak_mib``, in the order of their ends.
    tracking_run
        The MLflow run, where runs are tracked.
    decision
        How a retraining ended: ``promoted`` or ``kept``.
    made_from
        What its results stand for, see :func:`anmi.hooks.versions.facts`, with the hash and the
        split of the collection as it was read, and the seed of what it loaded where that is another
        than its own.
    """

    run_id: str = ""
    status: str = "running"
    environment: str = "local"
    pipelines: list[str] = field(default_factory=list)
    filters: dict[str, Any] = field(default_factory=dict)
    start: str = ""
    updated: str = ""
    end: str | None = None
    error: str | None = None
    failed_at: str = ""
    tracking_run: str | None = None
    decision: str = ""
    made_from: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    runtime_parameters: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)
    saved: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def begin(
        self, run_params: Mapping[str, Any], parameters: Mapping[str, Any], project: Path
    ) -> None:
        """Forget the run before and start with this one."""
        self.__init__()  # type: ignore[misc]
        self.run_id = run_params["run_id"]
        self.start = now()
        self.environment = run_params.get("env") or "local"
        # Sorted, because Kedro gives them in an order that changes from process to process.
        self.pipelines = sorted(run_params.get("pipeline_names") or ["__default__"])
        names = (
            "tags",
            "from_nodes",
            "to_nodes",
            "node_names",
            "from_inputs",
            "to_outputs",
            "namespaces",
        )
        self.filters = {name: list(run_params[name]) for name in names if run_params.get(name)}
        self.runtime_parameters = dict(run_params.get("runtime_params") or {})
        self.parameters = plain(parameters)
        self.git = git_state(project)
        self.machine = {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        }
        self.packages = package_versions()

    def go_on(self, before: Mapping[str, Any]) -> None:
        """Add what the same run noted before it stopped."""
        self.start = before["start"]
        self.pipelines = sorted({*before["pipelines"], *self.pipelines})
        self.nodes = list(before["nodes"])
        self.loaded = dict(before["loaded"])
        self.saved = dict(before["saved"])
        self.tracking_run = before["tracking_run"]
        self.made_from = dict(before.get("made_from", {}))

    def finish(self, error: BaseException | None = None) -> None:
        """Set the end and the status; only the first call counts."""
        if self.end is None:
            self.end = now()
            self.status = (
                "finished"
                if error is None
                else "failed"
                if isinstance(error, Exception)
                else "interrupted"
            )
            self.error = None if error is None else masked(f"{type(error).__name__}: {error}")

    def as_text(self) -> str:
        """Return the record as JSON, without secrets, and with a hash of the rest by which damage is noticed."""
        record = json.loads(json.dumps(all_masked(asdict(self)), allow_nan=False))
        return (
            json.dumps(record | {"digest": hash_value(record)}, indent=2, ensure_ascii=False) + "\n"
        )


class Runs:
    """The records under a data root, a path or a URL; a record that is there and cannot be read is an AnmiError."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._known: dict[str, dict[str, Any]] = {}

    def all(self) -> list[dict[str, Any]]:
        """Return all records, the oldest first, each with its :meth:`status`."""
        found = [self.read(name) for name in buckets.names(f"{self.root}/runs")]
        return sorted(
            (each | {"status": self.status(each)} for each in found if each),
            key=lambda each: each["run_id"],
        )

    def read(self, run_id: str) -> dict[str, Any]:
        """Return the record of a run as it was written; empty where there is none."""
        return record_of(self.root, run_id)

    def status(self, record: Mapping[str, Any]) -> str:
        """Return the noted status, or ``killed`` where a run that says it is running has no process any more."""
        if record["status"] != "running":
            return str(record["status"])
        if "://" in self.root:
            living = (
                datetime.now(UTC) - datetime.fromisoformat(record["updated"] or record["start"])
                <= _SILENT
            )
        else:
            living = is_held(Path(self.root, "runs", record["run_id"], LOCK))
        return "running" if living else "killed"

    def get(self, run_id: str) -> dict[str, Any]:
        """Return the record of a run: by its id, the start of it, or ``latest`` for the last finished one.

        Raises
        ------
        AnmiError
            There is no such run, or more than one.
        """
        runs = self.all()
        found = [record for record in runs if record["run_id"].startswith(run_id)]
        if run_id == "latest":
            found = [record for record in runs if record["status"] == "finished"][-1:]
        if len(found) == 1:
            return found[0]
        ids = [record["run_id"] for record in runs]
        if found:
            raise AnmiError(
                f'"{run_id}" is the start of {len(found)} runs: give more of {", ".join(ids[-3:])}'
            )
        hint = nearest(run_id, ids[-5:]) if ids else "nothing was run here yet"
        raise AnmiError(
            f'there is no run "{run_id}" under {self.root}: {hint}; `kedro anmi runs` lists all'
        )

    def notice(self, run_id: str) -> str:
        """Return a sentence where the latest run is not this one and did not end well; else nothing."""
        latest = self.read(max(buckets.names(f"{self.root}/runs"), default=""))
        if (
            not latest
            or latest["run_id"] <= run_id
            or (status := self.status(latest)) == "finished"
        ):
            return ""
        place = f" at {latest['failed_at']}" if latest.get("failed_at") else ""
        became = {"running": "is still running", "failed": f"failed{place}"}.get(
            status, f"was {status}{place}"
        )
        collection = latest["parameters"].get("collection")
        return (
            f"The latest run, {latest['run_id']} on {collection}, {became}: what is shown is of run"
            f" {run_id}."
        )

    def versions(self, run_id: str) -> dict[str, str]:
        """Return the version of all that a run saved and loaded, and of what the runs before it made that from."""
        if run_id not in self._known:
            self._known[run_id] = {}
            record = self.read(run_id)
            noted = [each for kind in ("loaded", "saved") for each in record.get(kind, {}).items()]
            own = {name: entry["version"] for name, entry in noted if entry.get("version")}
            before: dict[str, str] = {}
            for version in sorted({*own.values()} - {run_id}):
                before |= self.versions(version)
            self._known[run_id] = before | own
        return self._known[run_id]


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def all_masked(value: Any) -> Any:
    """Mask the secrets of all texts in nested mappings and lists."""
    known = secrets_of_environment()
    return each_text(value, lambda text: masked(text, known))


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys; lists stay values.

    Examples
    --------
    >>> flatten({"a": {"b": 1, "c": {}}, "d": [1, 2]})
    {'a.b': 1, 'd': [1, 2]}
    """
    if not isinstance(value, Mapping):
        return {prefix: value}
    result: dict[str, Any] = {}
    for key, item in value.items():
        result |= flatten(item, f"{prefix}.{key}" if prefix else str(key))
    return result


def git_state(project: Path) -> dict[str, Any]:
    """Return the commit and whether the tree has changes; empty unless the repository holds this code."""

    def git(*arguments: str) -> str:
        words = ["git", "-C", str(project), *arguments]
        return subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        # An installed package may run inside a repository of something else.
        git("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
        return {
            "commit": git("rev-parse", "HEAD"),
            "changed": bool(git("status", "--porcelain", "-uno")),
        }
    except (OSError, subprocess.SubprocessError):
        return {}


def package_versions() -> dict[str, str]:
    """Return the installed versions of this package and of those that it requires, also for its extras."""
    required: list[str] = []
    # Of a folder of sources that is not installed, nothing is known of what it requires.
    with suppress(metadata.PackageNotFoundError):
        required = metadata.requires(DISTRIBUTION) or []
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in required}
    there = {found.metadata["Name"]: found.version for found in metadata.distributions()}
    return {name: there[name] for name in (DISTRIBUTION, *sorted(names)) if name in there}


def data_root(context: Any) -> str:
    """Return where the artifacts lie: a URL, or a path made absolute against the project.

    Raises
    ------
    AnmiError
        The URL holds credentials, which every path in a log or report would repeat.
    """
    root = str(context.config_loader["globals"].get("data", "data"))
    if holds_address_secret(root):
        raise AnmiError(
            "the data root (ANMI_DATA_ROOT) holds credentials; leave them out and give them by the"
            " variables of the storage, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return root if "://" in root else str((context.project_path / root).resolve())
