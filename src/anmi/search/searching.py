"""MLflow's own server runs a search: it takes questions and returns documents.

A model of :func:`anmi.datasets.model_registry.search_folder` names this module, and MLflow calls
:func:`_load_pyfunc` of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from anmi.search.hybrid import HybridSearch

PARAMS: Final = {"documents": 10}


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
        count = int((PARAMS | dict(params or {}))["documents"])
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
