"""One retriever trained on the rows of a run; of those with a companion there are two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.training.params import complete_options
from anmi.store import Store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.training.checkpoint import CheckpointPlan
    from anmi.training.options import TrainingOptions
    from anmi.training.trainer import TrainingResult

# As deep as lists are fused by default.
_DEV_DEPTH: Final = 100


@dataclass(frozen=True)
class Training:
    """What every retriever of a run is trained with.

    Attributes
    ----------
    rows
        Of training queries.
    dev_rows
        Of dev queries, for a second pass; empty where there is none.
    dev_tables
        ``corpus, queries, qrels`` that dev is measured on.
    common
        What else :func:`anmi.training.trainer.train` is told.
    """

    rows: pd.DataFrame
    dev_rows: pd.DataFrame
    dev_tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]
    corpus: pd.DataFrame
    encoder: str
    dense: DenseParams
    store: Store
    common: dict[str, Any]

    def run(self, asked: TrainingOptions, output: Path, plan: CheckpointPlan) -> tuple[TrainingResult, TrainingOptions]:
        """Train into a folder; return what came of it, and the options with what was estimated from the rows."""
        from anmi.retrieval.encoders import load_encoder
        from anmi.retrieval.two_encoders import two_encoders
        from anmi.training.refit import train_twice
        from anmi.training.trainer import train

        options, dense = complete_options(asked, self.rows, len(self.corpus)), self.dense

        def load() -> Any:
            models = self.store.path / "models"
            model = load_encoder(self.encoder, models, dense.max_length, dense.prompts)
            if options.context_encoder is not None:
                return two_encoders(
                    model, load_encoder(options.context_encoder, models, dense.max_length, dense.prompts)
                )
            if options.retriever == "dense":
                return model
            model = _sparse_start(model, options.masked_lm, self.corpus, self.store)
            model[0].sub_modules["query"][0].weight.requires_grad_(options.sparsity.learned_queries)
            return model

        def rank_dev(model: Any) -> pd.DataFrame:
            return dev_ranking(model, *self.dev_tables, dense.precision)

        told: dict[str, Any] = {"options": options, "output": output, "checkpoints": plan, **self.common}
        if self.dev_rows.empty:
            result = train(self.rows, encoder=load(), **told)
            result = replace(result, dev_run=rank_dev(result.model))
        else:
            result = train_twice(self.rows, self.dev_rows, load=load, rank_dev=rank_dev, **told)
        columns = ["query_id", "document_id", "score", "rank"]
        dev_run = result.dev_run.reindex(columns=columns).assign(retriever=options.retriever)
        return replace(result, dev_run=dev_run), options


def _sparse_start(encoder: Any, base: str | None, corpus: pd.DataFrame, store: Store) -> Any:
    """Return the untrained sparse retriever of a corpus, of a masked language model or tables of a static encoder."""
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.encoders import load_encoder
    from anmi.retrieval.kinds import is_static
    from anmi.retrieval.sparse.base import check_base
    from anmi.retrieval.sparse.model import inference_free, of_masked_lm

    if base is not None:
        check_base(base)
        return of_masked_lm(base, document_texts(corpus))
    if not is_static(encoder):
        encoder = load_encoder("static", store.path / "models")
    return inference_free(encoder, document_texts(corpus))


def dev_ranking(
    model: SentenceTransformer, corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame, precision: str
) -> pd.DataFrame:
    """Return what the dev queries with labels find in the whole corpus; no rows where there are none."""
    from anmi.evaluation.retrieval import ranked

    dev = queries[(queries.split == "dev") & queries.query_id.isin(qrels.query_id)]
    if dev.empty:
        return pd.DataFrame()
    return ranked(model, dev, qrels, corpus, _DEV_DEPTH, precision=precision)
