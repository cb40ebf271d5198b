"""The folder of a registered model, as MLflow loads and serves it: weights as safetensors, and what it is asked by."""

from __future__ import annotations

import importlib.metadata
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from anmi.retrieval.kinds import is_sparse
from anmi.search import served

WEIGHTS: Final = served.WEIGHTS
SERVING: Final = "anmi.json"
PROFILE: Final = "training_profile.json"
# What can be sent to a server of any version.
_EXAMPLE: Final = ["mean of an array ignoring nan"]


def model_folder(model: Any, folder: Path, serving: Mapping[str, Any], profile: Mapping[str, Any] | None) -> Path:
    """Write a model as MLflow loads and serves it: a SentenceTransformer by its own flavour, a sparse one by ours.

    Parameters
    ----------
    model
        A SentenceTransformer or SparseEncoder.
    folder
        Does not exist yet.
    serving
        How it is asked: prompts, longest input, precision.
    profile
        Of what it was trained on; None leaves it out.
    """
    # It warns of every CPU build of torch, whose version is noted without "+cpu".
    chatty = logging.getLogger("mlflow.utils.requirements_utils")
    level = chatty.level
    chatty.setLevel(logging.ERROR)
    try:
        (_save_sparse if is_sparse(model) else _save_dense)(model, folder)
    finally:
        chatty.setLevel(level)
    files = {SERVING: serving} | ({} if profile is None else {PROFILE: profile})
    for name, content in files.items():
        text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder


def _save_dense(model: Any, folder: Path) -> None:
    import mlflow.sentence_transformers as flavour
    from mlflow.models import infer_signature

    flavour.save_model(
        model,
        str(folder),
        # Named, since finding them out loads the model in another process.
        pip_requirements=flavour.get_default_pip_requirements(),
        signature=infer_signature(_EXAMPLE, model.encode(_EXAMPLE)),
        input_example=_EXAMPLE,
        create_model_card=False,
    )


def _save_sparse(model: Any, folder: Path) -> None:
    """Let the folder name the module that opens it: MLflow knows no type of its vectors, and loads no class of ours."""
    import mlflow.pyfunc as flavour
    from mlflow.models import infer_signature
    from mlflow.sentence_transformers import get_default_pip_requirements

    params = {"role": served.ROLES[0]}
    flavour.save_model(
        str(folder),
        loader_module=served.__name__,
        pip_requirements=[*get_default_pip_requirements(), f"anmi=={importlib.metadata.version('anmi')}"],
        signature=infer_signature(_EXAMPLE, served.Terms(model).predict(_EXAMPLE), params),
        input_example=(_EXAMPLE, params),
    )
    model.save(str(folder / WEIGHTS), create_model_card=False)


def read_beside(folder: Path, name: str) -> dict[str, Any]:
    """Return a JSON document that lies beside the weights; empty where there is none."""
    path = folder / name
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
