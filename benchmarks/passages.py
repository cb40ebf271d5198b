"""Long documents whole and as passages: what a search over documents gains from cutting them.

Collections: `modules`, made here of the built-in `api_docs` (a document for each module, with a
heading and the documentation of each of its functions; a query asks for the module of its
function), and MedQuAD with 1,500 training queries. Cells are whole runs of `kedro anmi ablate`;
MiniLM is measured once before training, on `modules`. Metrics count documents, so both ways have
the same labels. Cells that are there are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd

import common
from ablation import SHARED, Matrix, ablate
from anmi.corpus.passages import cut_collection
from anmi.corpus.sources import load_collection
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.evaluation.retrieval import ranked
from anmi.retrieval.encoders import Encoder, load_encoder
from common import METRIC, MODELS, ROOT, about, mean, save, write_beir

WORK: Final = common.WORK / "passages"
CUTS: Final = {"auto": "anmi", "none": "anmi:ingestion.passages=none"}


def make_modules(folder: Path) -> None:
    """Write `modules` in the layout of BEIR, unless it is there."""
    if (folder / "qrels").is_dir():
        return
    found = load_collection("api_docs", seed=1)
    corpus = found.corpus.assign(module=found.corpus.document_id.str.rpartition(".")[0])
    sections = "## " + corpus.document_id + "\n\n" + corpus.text
    texts = sections.groupby(corpus.module).agg("\n\n".join)
    documents = texts.rename_axis("document_id").rename("text").reset_index()
    labels = found.qrels.assign(relevance=1)
    labels["document_id"] = labels.document_id.map(
        dict(zip(corpus.document_id, corpus.module, strict=True))
    )
    labels = labels.drop_duplicates(["query_id", "document_id", "split"])
    write_beir(folder, documents.assign(title=documents.document_id), found.queries, labels)


def measured(encoder: str, collection: str, place: str) -> Iterator[dict[str, Any]]:
    """Run both ways with an encoder and yield a row for each system and bucket."""
    output = WORK / encoder / collection
    systems = [f"{name}={recipe}" for name, recipe in CUTS.items()]
    ablate(Matrix(systems, [f"{collection}={place}"], "1", f"encoder={encoder}"), output)
    for passages in CUTS:
        table = pd.read_parquet(next(output.glob(f"*/{passages}/seed1/queries.parquet")))
        table = table[table.judgments == "original"]
        for (system, bucket), part in pd.concat([table.assign(bucket="all"), table]).groupby(
            ["system", "bucket"]
        ):
            yield row_of(part[METRIC], collection, passages, encoder, str(system), str(bucket))


def zero_shot(encoder: str, collection: str, place: str) -> Iterator[dict[str, Any]]:
    """Measure an encoder before training, both ways."""
    model, found = load_encoder(encoder, MODELS), load_collection(place, seed=1)
    for passages in CUTS:
        cut = cut_collection(found, passages, found.corpus.document_id)  # type: ignore[arg-type]
        asked = cut.queries[cut.queries.split == "test"]
        truth = cut.qrels[cut.qrels.query_id.isin(asked.query_id)]
        run = ranked(
            Encoder.of(model),
            asked,
            truth,
            cut.corpus,
            100,
            description=f"{collection}, {passages}",
        )
        scores = evaluate(of_documents(truth, cut.corpus), run, (10,))[METRIC]
        yield row_of(scores, collection, passages, encoder, "zero_shot", "all")


def row_of(
    scores: pd.Series, collection: str, passages: str, encoder: str, system: str, bucket: str
) -> dict[str, Any]:
    names = {
        "collection": collection,
        "passages": passages,
        "encoder": encoder,
        "system": system,
        "bucket": bucket,
    }
    return names | mean(scores)


def main() -> None:
    make_modules(WORK / "modules")
    places = {
        "modules": f"beir:{(WORK / 'modules').relative_to(ROOT)}",
        "medquad": f"{SHARED}/medquad,ingestion.max_queries=1500",
    }
    rows: list[dict[str, Any]] = []
    for encoder in ("corpus", "static"):
        for collection, place in places.items():
            rows += measured(encoder, collection, place)
    save(
        "passages", {**about(), "rows": [*rows, *zero_shot("minilm", "modules", places["modules"])]}
    )


if __name__ == "__main__":
    main()
