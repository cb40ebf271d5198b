"""MLflow's own server runs a sparse retriever: it takes texts and returns terms with their weights.

A registered model names this module, and MLflow calls :func:`_load_pyfunc` of it.
sentence-transformers, which MLflow loads other models by, opens no folder of ours: it takes none of
the classes that are not its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from anmi.errors import AnmiError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

WEIGHTS: Final = "model.sentence_transformer"
ROLES: Final = ("document", "query")


class Terms:
    """What a sparse retriever makes of texts, as JSON values.

    Parameters
    ----------
    model
        The retriever.
    """

    def __init__(self, model: SparseEncoder) -> None:
        self.model = model
        self._words = np.array(
            model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer))), object
        )

    def predict(
        self,
        model_input: Sequence[str] | Any,
        params: Mapping[str, Any] | None = None,
    ) -> list[dict[str, list[Any]]]:
        """Return ``terms`` and their ``weights`` of every text, the heaviest first.

        The inner product of a query's and a document's is what documents are ranked by.

        Parameters
        ----------
        model_input
            T texts, or a table of one column as MLflow makes of some requests.
        params
            ``role`` is ``document``, as where it is not given, or ``query``.

        Raises
        ------
        AnmiError
            Another role.
        """
        from anmi.retrieval.sparse.model import sparse_vectors

        role = (params or {}).get("role", ROLES[0])
        if role not in ROLES:
            raise AnmiError(f'the role of texts is "{role}": give {" or ".join(ROLES)}')
        table: Any = model_input
        table = table.iloc[:, 0] if getattr(table, "ndim", 1) == 2 else table
        answers = []
        vectors = sparse_vectors(
            self.model, [str(text) for text in table], cast(Literal["query", "document"], role)
        )
        for row in (vectors[[place]] for place in range(vectors.shape[0])):
            order = np.argsort(-row.data, kind="stable")
            terms = self._words[row.indices[order]]
            weights = row.data[order].astype(float)
            answers.append({"terms": terms.tolist(), "weights": weights.tolist()})
        return answers


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Terms:
    """Open the folder of a registered model, as MLflow asks of a module that a model names."""
    from anmi.retrieval.kinds import device
    from anmi.retrieval.sparse.document import load_sparse

    return Terms(load_sparse(Path(path) / WEIGHTS, device()))
