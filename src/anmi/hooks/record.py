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
)
from anmi.files import is_held, plain
from anmi.fingerprint import hash_value

FILE: Final = "run.json"
LOCK: Final = "lock"
VERSION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d\.\d{3}Z")
UNFINISHED: Final = ("killed", "failed", "interrupted")
# Options of `kedro run` that choose among the nodes of the pipelines.
_FILTERS: Final = (
    "tags",
    "from_nodes",
    "to_nodes",
    "node_names",
    "from_inputs",
    "to_outputs",
    "namespaces",
)
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

    @classmethod
    def begin(
        cls, run_params: Mapping[str, Any], parameters: Mapping[str, Any], project: Path
    ) -> RunRecord:
        """Return the record of a run that begins, from what Kedro says of it."""
        return cls(
            run_id=run_params["run_id"],
            start=now(),
            environment=run_params.get("env") or "local",
            # Sorted, because Kedro gives them in an order that changes from process to process.
            pipelines=sorted(run_params.get("pipeline_names") or ["__default__"]),
            filters={name: list(run_params[name]) for name in _FILTERS if run_params.get(name)},
            runtime_parameters=dict(run_params.get("runtime_params") or {}),
            parameters=plain(parameters),
            git=git_state(project),
            machine={
                "platform": platform.platform(),
                "python": platform.python_version(),
                "cores": os.cpu_count(),
            },
            packages=package_versions(),
        )

    def resume(self, earlier: Mapping[str, Any]) -> None:
        """Add what the same run noted before it stopped."""
        self.start = earlier["start"]
        self.pipelines = sorted({*earlier["pipelines"], *self.pipelines})
        self.nodes = list(earlier["nodes"])
        self.loaded = dict(earlier["loaded"])
        self.saved = dict(earlier["saved"])
        self.tracking_run = earlier["tracking_run"]
        self.made_from = dict(earlier.get("made_from", {}))

    def finish(self, error: BaseException | None = None) -> None:
        """Set the end and the status; only the first call counts."""
        if self.end is not None:
            return
        self.end = now()
        self.status = "finished"
        if error is not None:
            self.status = "failed" if isinstance(error, Exception) else "interrupted"
            self.error = masked(f"{type(error).__name__}: {error}")

    def as_text(self) -> str:
        """Return the record as JSON without secrets; its digest tells whether it is damaged."""
        record = json.loads(json.dumps(all_masked(asdict(self)), allow_nan=False))
        record["digest"] = hash_value(record)
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


class Runs:
    """The records under a data root, a path or a URL; one that cannot be read is an AnmiError."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._versions: dict[str, dict[str, str]] = {}

    def all(self) -> list[dict[str, Any]]:
        """Return all records, the oldest first, each with its :meth:`status`."""
        records = [self.read(run_id) for run_id in buckets.names(f"{self.root}/runs")]
        return sorted(
            (record | {"status": self.status(record)} for record in records if record),
            key=lambda record: record["run_id"],
        )

    def read(self, run_id: str) -> dict[str, Any]:
        """Return the record of a run as it was written; empty where there is none."""
        return record_of(self.root, run_id)

    def status(self, record: Mapping[str, Any]) -> str:
        """Return the noted status; ``killed`` where a running run has no process any more."""
        if record["status"] != "running":
            return str(record["status"])
        if "://" in self.root:
            updated = datetime.fromisoformat(record["updated"] or record["start"])
            is_alive = datetime.now(UTC) - updated <= _SILENT
        else:
            is_alive = is_held(Path(self.root, "runs", record["run_id"], LOCK))
        return "running" if is_alive else "killed"

    def get(self, run_id: str) -> dict[str, Any]:
        """Return the record of a run: by its id, its beginning, or ``latest``, the last finished.

        Raises
        ------
        AnmiError
            There is no such run, or more than one.
        """
        records = self.all()
        if run_id == "latest":
            matches = [record for record in records if record["status"] == "finished"][-1:]
        else:
            matches = [record for record in records if record["run_id"].startswith(run_id)]
        if len(matches) == 1:
            return matches[0]
        run_ids = [record["run_id"] for record in records]
        if matches:
            raise AnmiError(
                f'"{run_id}" is the start of {len(matches)} runs: give more of'
                f" {', '.join(run_ids[-3:])}"
            )
        hint = nearest(run_id, run_ids[-5:]) if run_ids else "nothing was run here yet"
        raise AnmiError(
            f'there is no run "{run_id}" under {self.root}: {hint}; `kedro anmi runs` lists all'
        )

    def under_way(self) -> str:
        """Return the id of the latest run if it is still running; else nothing."""
        latest = self.read(max(buckets.names(f"{self.root}/runs"), default=""))
        return str(latest["run_id"]) if latest and self.status(latest) == "running" else ""

    def notice(self, run_id: str) -> str:
        """Return a sentence where a later run did not end well; else nothing."""
        latest = self.read(max(buckets.names(f"{self.root}/runs"), default=""))
        if not latest or latest["run_id"] <= run_id:
            return ""
        status = self.status(latest)
        if status == "finished":
            return ""
        node = f" at {latest['failed_at']}" if latest.get("failed_at") else ""
        outcomes = {"running": "is still running", "failed": f"failed{node}"}
        outcome = outcomes.get(status, f"was {status}{node}")
        return (
            f"The latest run, {latest['run_id']} on {latest['parameters'].get('collection')},"
            f" {outcome}: what is shown is of run {run_id}."
        )

    def versions(self, run_id: str) -> dict[str, str]:
        """Return the versions of what a run saved and loaded, and of what that was made from."""
        if run_id not in self._versions:
            self._versions[run_id] = {}
            record = self.read(run_id)
            entries = record.get("loaded", {}) | record.get("saved", {})
            direct = {
                name: entry["version"] for name, entry in entries.items() if entry.get("version")
            }
            inherited: dict[str, str] = {}
            for version in sorted({*direct.values()} - {run_id}):
                inherited |= self.versions(version)
            self._versions[run_id] = inherited | direct
        return self._versions[run_id]


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def all_masked(value: Any) -> Any:
    """Mask the addresses in all texts of nested mappings and lists."""
    return each_text(value, masked)


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
    """Return the commit and whether the tree has changes; empty outside this repository."""

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
    """Return the installed versions of this package and of all that it and its extras require."""
    requirements: list[str] = []
    # A folder of sources that is not installed does not say what it requires.
    with suppress(metadata.PackageNotFoundError):
        requirements = metadata.requires(DISTRIBUTION) or []
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements}
    versions: dict[str, str] = {}
    for name in (DISTRIBUTION, *sorted(names)):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


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
