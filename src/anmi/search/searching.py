"""MLflow's own server runs a search: it takes questions and returns documents.

A model that :func:`export_model` wrote names this module, and MLflow calls :func:`_load_pyfunc` of
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from anmi.errors import DISTRIBUTION
from anmi.search.hybrid import HybridSearch

_EXAMPLE: Final = ["mean of an array ignoring nan"]
_DOCUMENTS: Final = 10


class Searching:
    """A search as MLflow asks for it.

    Parameters
    ----------
    search
        The search.
    """

    def __init__(self, search: HybridSearch) -> None:
        self.search = search

    def predict(
        self,
        model_input: Sequence[str] | Any,
        params: Mapping[str, Any] | None = None,
    ) -> list[dict[str, list[dict[str, Any]]]]:
        """Return the best ``documents`` of every question, the best first.

        Parameters
        ----------
        model_input
            Texts, or a table of one column as MLflow makes of some requests.
        params
            ``documents``: how many of a question, at most.
        """
        table: Any = model_input
        column = table.iloc[:, 0] if getattr(table, "ndim", 1) == 2 else table
        questions = [str(text) for text in column]
        count = int((params or {}).get("documents", _DOCUMENTS))
        answers = []
        for hits in self.search.search(questions, count):
            documents = [
                {
                    "rank": hit.rank,
                    "document_id": hit.document_id,
                    "title": hit.title,
                    "text": hit.text,
                    "score": hit.score,
                }
                for hit in hits
            ]
            answers.append({"documents": documents})
        return answers


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Searching:
    """Open the folder of a search, as MLflow asks of a module that a model names."""
    return Searching(HybridSearch.load(path))


def export_model(search: HybridSearch, folder: Path) -> int:
    """Write a search, its index and texts as a model of MLflow, and return how many documents.

    Parameters
    ----------
    search
        That was loaded from a folder, which is copied.
    folder
        Made if it is not there, or empty.
    """
    from mlflow import pyfunc
    from mlflow.models import infer_signature

    from anmi import __version__

    params = {"documents": _DOCUMENTS}
    answers = Searching(search).predict(_EXAMPLE, params)
    pyfunc.save_model(
        str(folder),
        loader_module=__name__,
        data_path=str(search.folder),
        input_example=(_EXAMPLE, params),
        pip_requirements=[f"{DISTRIBUTION}=={__version__}"],
        signature=infer_signature(_EXAMPLE, answers, params),
    )
    return len(search.document_ids)
