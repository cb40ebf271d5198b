"""Measure what the similarity by a packaged network, untrained, adds to the fused judge, and ship coefficients.

Coefficients are fitted with it and without it on all collections but one and tried on that one, as
in fit_fused.py, with the encoder ``corpus``. Of large collections some queries serve, and of each
query what is relevant and a share of the other candidates, so that the network reads few texts.
Writes benchmarks/results/network_evidence.json, and with --write the models with the network into
src/anmi/judging/fused_transfer.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import planted
from anmi import seeds
from anmi.candidates import PADDING, Candidates
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.judging.evidence import NETWORK
from anmi.judging.fused import EVIDENCE, FEATURES, OF_NETWORK, FusedModel, features, with_network
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.exact import similarities
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.spelling import network_for
from common import about, now, parser, save
from fit_fused import RIDGE, SUPERSET_WEIGHT, TARGET, fit_model, rounded
from planted import COLLECTIONS, DEPTH, SEED, SUPERSETS, WORK

ENCODER: Final = "corpus"
QUERIES: Final = {"kg_webnlg/beir_en": 200, "medquad": 200, "sae4k_ko": 200}
# Candidates of a query that are not relevant, on average, and made-up supersets of a collection.
OTHERS: Final = 25
MADE: Final = 100
TOKENS: Final = 256
RESAMPLES: Final = 300
# Inputs of which no use is made.
VARIANTS: Final = {"without": (OF_NETWORK,), "with": ()}
BY_NETWORK: Final = [*FEATURES].index(OF_NETWORK)


class Measured(NamedTuple):
    """Inputs of candidates [n, K] and of supersets [m, K], and which are relevant and of which query, [n]."""

    name: str
    network: str
    values: NDArray[np.float32]
    supersets: NDArray[np.float32]
    truth: NDArray[np.bool_]
    query: NDArray[np.int64]

    @property
    def size(self) -> dict[str, Any]:
        """How much it is."""
        queries = len(np.unique(self.query))
        counts = {"candidates": len(self.truth), "planted": int(self.truth.sum())}
        return {"collection": self.name, "queries": queries, **counts}


def measured(name: str) -> Measured:
    """Read a collection with planted truth and let the network read a sample of its candidates."""
    place, kind, most = COLLECTIONS[name]
    COLLECTIONS[name] = (place, kind, QUERIES.get(name, most))
    (each,) = planted.planted([name], ENCODER)
    block = each.block
    ids = block.query_ids.tolist()
    collection = load_collection(place, seed=SEED)
    texts = document_texts(collection.corpus)
    rows, joined = planted.supersets(ids, block.documents, block.positives, texts)
    rows, joined = rows[:MADE], joined[::SUPERSETS][:MADE]
    draws = seeds.uniform(SEED, "benchmark/network", ids, block.documents)
    kept = block.filled & (each.truth | (draws < OTHERS / DEPTH))

    store = planted.kept_in(WORK)
    network = network_for(texts, store.path / "models").name
    assert network is not None
    settings = EncoderSettings(encoder=network, max_length=TOKENS)
    encoder = Encoder(settings, store.path / "models", store)
    asked = collection.queries.set_index("query_id").text[ids].tolist()
    by_query = encoder.encode(asked, "query", f"{name}: queries")
    places = np.unique([*block.documents[kept], *block.positives[block.positives != PADDING]])
    read = [*(texts[place] for place in places), *joined]
    found = encoder.encode(read, "document", f"{name}: documents")
    vectors = np.zeros((len(texts) + len(joined), found.shape[1]), np.float32)
    made = np.arange(len(texts), len(vectors), dtype=np.int32)
    vectors[[*places, *made]] = found

    block = block.with_columns(
        {NETWORK: similarities(by_query, vectors, block.documents)},
        {NETWORK: similarities(by_query, vectors, block.positives)},
    )
    part = block.take(rows)
    unknown = dict.fromkeys(EVIDENCE, np.full((len(rows), 1), np.nan, np.float32))
    cosines = {NETWORK: similarities(by_query[rows], vectors, made[:, None])}
    those = Candidates(
        query_ids=part.query_ids,
        positives=part.positives,
        documents=made[:, None],
        source=np.zeros((len(rows), 1), np.uint8),
        columns=unknown | cosines,
        positive_columns=part.positive_columns,
    )
    supersets = each.supersets[::SUPERSETS][:MADE]
    supersets[:, BY_NETWORK] = features(those)[:, 0, BY_NETWORK]
    row, slot = np.nonzero(kept)
    return Measured(
        name, network, features(block)[row, slot], supersets, each.truth[row, slot], row
    )


def by_minilm(each: Measured, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return inputs without what another network than MiniLM says."""
    hidden = values.copy()
    if each.network != "minilm":
        hidden[:, BY_NETWORK] = np.nan
    return hidden


def fitted(collections: Sequence[Measured], without: Sequence[str]) -> FusedModel:
    """Fit one model as fit_fused.py does; its log-odds are those of all candidates, not of the sample.

    Of networks it learns about MiniLM only: cosines by e5 are nearly all alike.
    """
    groups = [np.full(len(each.truth), place) for place, each in enumerate(collections)]
    model = fit_model(
        np.concatenate([by_minilm(each, each.values) for each in collections]),
        np.concatenate([each.truth for each in collections]),
        np.concatenate(groups),
        RIDGE,
        extra=np.concatenate([by_minilm(each, each.supersets) for each in collections]),
        extra_weight=SUPERSET_WEIGHT,
        without=without,
    )
    return replace(model, intercept=model.intercept + math.log(OTHERS / DEPTH))


def resampled(each: Measured, model: FusedModel) -> NDArray[np.float64]:
    """AUC on a collection, and behind it on resamples of its queries that are always the same, [1 + R]."""
    rng = seeds.stream(SEED, "benchmark/network", each.name)
    queries = int(each.query.max()) + 1
    times = rng.multinomial(queries, np.full(queries, 1 / queries), RESAMPLES)
    times = np.concatenate([np.ones((1, queries), np.int64), times])
    chances = model(each.values)
    return np.array(
        [roc_auc_score(each.truth, chances, sample_weight=t[each.query]) for t in times]
    )


def main() -> None:
    """Measure, and write what was found."""
    arguments = parser(__doc__)
    arguments.add_argument("--write", action="store_true", help="ship the coefficients")
    given = arguments.parse_args()
    collections = [measured(name) for name in COLLECTIONS]
    rows = []
    for each in collections:
        others = [other for other in collections if other is not each]
        models = {name: fitted(others, unused) for name, unused in VARIANTS.items()}
        aucs = {name: resampled(each, model) for name, model in models.items()}
        row = {**each.size, "network": each.network}
        for name, found in aucs.items():
            more = found - aucs["without"]
            row[name] = {
                "auc": round(float(found[0]), 4),
                "more": round(float(more[0]), 4),
                "standard_error": round(float(more[1:].std()), 4),
            }
        print(row, flush=True)
        rows.append(row)
    save("network_evidence", {**about(), "encoder": ENCODER, "others": OTHERS, "rows": rows})
    if given.write:
        ship(collections, rows)


def ship(collections: Sequence[Measured], rows: Sequence[dict[str, Any]]) -> None:
    """Write the models with the network among the shipped ones."""
    raw = json.loads(TARGET.read_text(encoding="utf-8"))
    name = with_network(ENCODER)
    raw["models"][name] = rounded(fitted(collections, ()))
    for each in collections:
        others = [other for other in collections if other is not each]
        raw["without"][each.name][name] = rounded(fitted(others, ()))
    source = raw["provenance"]
    source["collections"][name] = [each.size for each in collections]
    source["auc_held_out"][name] = {row["collection"]: row["with"]["auc"] for row in rows}
    source["fitted"][name] = {"date": now()[:10], "script": "benchmarks/network_evidence.py"}
    TARGET.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
