"""The MLflow Model Registry: versions of a retriever, ``champion`` and ``challenger`` among them.

Through the client only, so that nothing global is set. A version is a folder that
``mlflow.sentence_transformers.load_model("models:/NAME@champion")`` reads, or
``mlflow.pyfunc.load_model`` where it is of a sparse retriever: weights as safetensors, nothing
pickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from anmi import __version__
from anmi.errors import DISTRIBUTION, AnmiError, first_line, masked
from anmi.files import aside
from anmi.fingerprint import files_in, hash_files
from anmi.retrieval.kinds import is_sparse, quieter
from anmi.search import HybridSearch, searching, served

# All that MLflow gives at a time.
_MOST_VERSIONS: Final = 200_000
CHAMPION: Final = "champion"
CHALLENGER: Final = "challenger"
# Tags of a version.
DIGEST: Final = "digest"
PREVIOUS: Final = "previous_champion"
ROLLED_BACK: Final = "rolled_back"
# MLflow leaves this beside a model that somebody has loaded from a local store.
_NOT_OURS: Final = "registered_model_meta"
# Instead of a number where there was no champion before.
_FIRST: Final = "none"
WEIGHTS: Final = served.WEIGHTS
SERVING: Final = "anmi.json"
PROFILE: Final = "training_profile.json"
# Beside the weights of a model that was trained once more, the model with which it is compared.
MEASURED: Final = "measured"
# What can be sent to a server of any version.
_EXAMPLE: Final = ["mean of an array ignoring nan"]


@dataclass(frozen=True)
class Entry:
    """A version of a registered model: the MLflow run that made it, its tags, and when, in UTC."""

    name: str
    version: int
    run: str
    tags: dict[str, str]
    created: str

    def __str__(self) -> str:
        return f"version {self.version}"

    @property
    def previous(self) -> int | None:
        """The champion before this one, where it became champion."""
        return int(self.tags[PREVIOUS]) if self.tags.get(PREVIOUS, "").isdigit() else None


def connect(uri: str) -> Any:
    """Return a client of a tracking store."""
    from mlflow import MlflowClient

    if not uri.startswith("sqlite:///"):
        return MlflowClient(tracking_uri=uri)
    database = Path(uri.removeprefix("sqlite:///"))
    database.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(database.with_name(f"{database.name}.lock")):
        if not database.exists():
            # Tables are made for seconds; a run that is stopped meanwhile is to leave none rather
            # than half of them.
            with aside(database) as new_database:
                client = MlflowClient(tracking_uri=f"sqlite:///{new_database}")
                client._tracking_client.store.engine.dispose()
        return MlflowClient(tracking_uri=uri)


class ModelRegistry:
    """What is done to the registry; every failure of it is one sentence.

    Parameters
    ----------
    uri
        Of the tracking server or database, which holds the registry as well.
    run
        The MLflow run under way; None where nothing is written to a run.
    """

    def __init__(self, uri: str, run: str | None = None) -> None:
        self.uri = uri
        self.run = run
        with registry_errors(uri):
            self.client = connect(uri)

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call the client; None where something is not there, or is there already."""
        from mlflow.exceptions import MlflowException

        with registry_errors(self.uri):
            try:
                return getattr(self.client, method)(*arguments, **options)
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"):
                    raise
                return None

    def names(self) -> list[str]:
        """Return the names of all registered models."""
        models = self._call("search_registered_models", max_results=1000)
        return sorted(model.name for model in models)

    def aliases(self, name: str) -> dict[str, int]:
        """Return the versions by alias; empty where the model is not registered."""
        model = self._call("get_registered_model", name)
        aliases = {} if model is None else model.aliases
        return {alias: int(version) for alias, version in aliases.items()}

    def at(self, name: str, alias: str) -> Entry | None:
        """Return the version that has the alias."""
        version = self.aliases(name).get(alias)
        return None if version is None else self.entry(name, version)

    def entry(self, name: str, version: int) -> Entry:
        """Return a version; that there is none of the number is an AnmiError."""
        model_version = self._call("get_model_version", name, str(version))
        if model_version is None:
            raise AnmiError(
                f'"{name}" has no version {version}: `kedro anmi champion --model {name}` lists'
                " them"
            )
        return _entry(model_version)

    def entries(self, name: str) -> list[Entry]:
        """Return all versions, the newest first."""
        condition = f"name='{name}'"
        versions = self._call("search_model_versions", condition, max_results=_MOST_VERSIONS)
        return sorted(map(_entry, versions), key=lambda entry: -entry.version)

    def register(self, name: str, folder: Path, tags: Mapping[str, Any]) -> Entry:
        """Log a folder of :func:`model_folder`, and make it a version, the challenger."""
        if self.run is None:
            raise AnmiError(
                "a model is registered by a tracked run: set `enabled: true` in mlflow.yml"
            )
        content = digest(folder)
        # By content: a run that is tried again never changes the files of an earlier version.
        place = f"model/{content[:12]}"
        self._call("create_registered_model", name)
        with registry_errors(self.uri):
            self.client.log_artifacts(self.run, str(folder), place)
            texts = {tag: str(value) for tag, value in {**tags, DIGEST: content}.items()}
            # Where the files are, as MLflow's own functions say it: of runs:/ its page of a version
            # shows no signature.
            source = f"{self.client.get_run(self.run).info.artifact_uri}/{place}"
            model_version = self.client.create_model_version(name, source, self.run, texts)
        self._call("set_registered_model_alias", name, CHALLENGER, model_version.version)
        return _entry(model_version)

    def note(self, entry: Entry, tag: str, value: str | None) -> None:
        """Set a tag of a version; None removes it."""
        if value is not None:
            self._call("set_model_version_tag", entry.name, str(entry.version), tag, value)
        elif tag in entry.tags:
            self._call("delete_model_version_tag", entry.name, str(entry.version), tag)

    def set_champion(self, entry: Entry, replaced: Entry | None) -> None:
        """Make a version champion; what a first crowning remembers is the way back.

        A champion whose weights are those of the one before takes over that one's memory: going
        back to an equal model would change nothing.
        """
        if PREVIOUS not in entry.tags:
            previous = None
            if replaced is not None:
                fingerprints = [version.tags.get("fingerprint") for version in (replaced, entry)]
                is_equal = fingerprints[0] == fingerprints[1] is not None
                previous = replaced.previous if is_equal else replaced.version
            self.note(entry, PREVIOUS, _FIRST if previous is None else str(previous))
        # Last, so that a champion that can be seen has its memory.
        self._call("set_registered_model_alias", entry.name, CHAMPION, str(entry.version))

    def fetch(self, entry: Entry, folder: Path) -> Path:
        """Download a version, which must be byte for byte what was registered."""
        registered = entry.tags.get(DIGEST)
        remedy = (
            f"go back with `kedro anmi champion --rollback --model {entry.name}`, or register it"
            " again"
        )
        if not registered:
            raise AnmiError(
                f'{entry} of "{entry.name}" has no tag "{DIGEST}", so its files cannot be checked:'
                f" {remedy}"
            )
        import mlflow.artifacts

        with registry_errors(
            self.uri, f'the files of {entry} of "{entry.name}" cannot be fetched', remedy
        ):
            source = self.client.get_model_version_download_uri(entry.name, str(entry.version))
            place = {"artifact_uri": source, "dst_path": str(folder)}
            fetched = Path(mlflow.artifacts.download_artifacts(**place, tracking_uri=self.uri))
        content = digest(fetched)
        if content != registered:
            raise AnmiError(
                f'{entry} of "{entry.name}" is not what was registered (digest {content[:12]}…,'
                f" {registered[:12]}… was expected): {remedy}"
            )
        return fetched

    def has_files(self, entry: Entry) -> bool:
        """Tell whether the files of a version are still there."""
        import mlflow.artifacts

        with registry_errors(self.uri):
            source = self.client.get_model_version_download_uri(entry.name, str(entry.version))
            return bool(mlflow.artifacts.list_artifacts(artifact_uri=source, tracking_uri=self.uri))


def _entry(model_version: Any) -> Entry:
    created = datetime.fromtimestamp(model_version.creation_timestamp / 1000, UTC)
    return Entry(
        model_version.name,
        int(model_version.version),
        model_version.run_id or "",
        dict(model_version.tags or {}),
        created.isoformat(timespec="seconds"),
    )


@contextmanager
def registry_errors(
    uri: str, problem: str = "the model registry cannot be used", hint: str = ""
) -> Iterator[None]:
    """Turn what MLflow raises into one sentence."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        hint = hint or "check MLFLOW_TRACKING_URI and that the server is up"
        raise AnmiError(f"{problem} ({masked(uri)}: {first_line(error)}): {hint}") from None


def digest(folder: Path) -> str:
    """Return a SHA-256 over names and contents of the files of a model, wherever it lies."""
    files = [path for path in files_in(folder) if path.name != _NOT_OURS]
    return hash_files(
        ((path.relative_to(folder).as_posix(), path) for path in files), kind="sha256"
    )


def model_folder(
    model: Any, folder: Path, serving: Mapping[str, Any], profile: Mapping[str, Any] | None
) -> Path:
    """Write a model as MLflow loads and serves it, a sparse one by a flavour of ours.

    Parameters
    ----------
    model
        A SentenceTransformer or SparseEncoder.
    folder
        Does not exist yet.
    serving
        Prompts, longest input and precision.
    profile
        The profile of what it was trained on; None leaves it out.
    """
    import mlflow.sentence_transformers as dense
    from mlflow import pyfunc
    from mlflow.models import infer_signature

    # It warns of every CPU build of torch, whose version is noted without "+cpu".
    with quieter("mlflow.utils.requirements_utils"):
        # Named, since finding them out loads the model in another process.
        requirements = dense.get_default_pip_requirements()
        if is_sparse(model):
            # The folder names the module that opens it: MLflow knows no type of its vectors, and no
            # class of ours.
            params = {"role": served.ROLES[0]}
            terms = served.Terms(model).predict(_EXAMPLE)
            pyfunc.save_model(
                str(folder),
                loader_module=served.__name__,
                input_example=(_EXAMPLE, params),
                pip_requirements=[*requirements, f"{DISTRIBUTION}=={__version__}"],
                signature=infer_signature(_EXAMPLE, terms, params),
            )
            model.save(str(folder / WEIGHTS), create_model_card=False)
        else:
            dense.save_model(
                model,
                str(folder),
                input_example=_EXAMPLE,
                pip_requirements=requirements,
                signature=infer_signature(_EXAMPLE, model.encode(_EXAMPLE)),
                create_model_card=False,
            )
    documents = {SERVING: serving}
    if profile is not None:
        documents[PROFILE] = profile
    for name, content in documents.items():
        text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder


def search_folder(search: HybridSearch, folder: Path) -> Path:
    """Write a search that was loaded from a folder, and its index, as MLflow serves it."""
    from mlflow import pyfunc
    from mlflow.models import infer_signature

    answers = searching.Searching(search).predict(_EXAMPLE)
    pyfunc.save_model(
        str(folder),
        loader_module=searching.__name__,
        data_path=str(search.folder),
        input_example=(_EXAMPLE, searching.PARAMS),
        pip_requirements=[f"{DISTRIBUTION}=={__version__}"],
        signature=infer_signature(_EXAMPLE, answers, searching.PARAMS),
    )
    return folder


def read_beside(folder: Path, name: str) -> dict[str, Any]:
    """Return a JSON document that lies beside the weights; empty where there is none."""
    path = folder / name
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
