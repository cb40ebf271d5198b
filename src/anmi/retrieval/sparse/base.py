"""What a folder can be to a sparse retriever; light, so that a run is refused before it mines."""

from __future__ import annotations

import json
from pathlib import Path

from anmi.errors import AnmiError
from anmi.retrieval.model_folder import is_folder


def is_sparse_folder(folder: Path) -> bool:
    """Tell whether a folder holds a SparseEncoder of sentence-transformers."""
    file = folder / "config_sentence_transformers.json"
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("model_type") == "SparseEncoder"


def check_base(name: str) -> None:
    """Raise an AnmiError unless a folder holds a masked language model; what the hub has is seen when it is fetched.

    Parameters
    ----------
    name
        Of ``training.options.masked_lm``.
    """
    if not name:
        raise AnmiError(
            "training: the recipe is published with a masked language model, and none is packaged; name one by "
            "training.options.masked_lm=FOLDER, or take recipe=sparse"
        )
    if not is_folder(name):
        if name.count("/") != 1 or name.startswith((".", "/")):
            raise AnmiError(
                f'there is no masked language model in "{name}"; give training.options.masked_lm the folder of one, or '
                "its name on the hub"
            )
        return
    try:
        settings = json.loads((Path(name) / "config.json").read_text(encoding="utf-8"))
        kinds = [str(kind) for kind in settings.get("architectures") or []]
    except (OSError, ValueError, AttributeError, TypeError):
        raise AnmiError(
            f'"{name}" could not be loaded, since its config.json is missing or damaged; give '
            "training.options.masked_lm the folder of a transformers model"
        ) from None
    if not any(kind.endswith("ForMaskedLM") for kind in kinds):
        raise AnmiError(
            f'"{name}" has no head that predicts masked tokens (its architecture is {", ".join(kinds) or "unknown"}), '
            "from which documents would get their terms; give a model saved as …ForMaskedLM, such as a BERT, or leave "
            "out training.options.masked_lm to start from tables of a static encoder"
        )
