"""A profile of training data: a few hundred kilobytes of JSON by which later data can be told to be different."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import NEGATIVE, OPEN, PADDING, Candidates, CandidateShards
from anmi.corpus.hardness import HardnessParams, hardness
from anmi.corpus.texts import document_texts
from anmi.evaluation.binned import EDGES, Shares, Tally
from anmi.evaluation.distributions import SCORE_COLUMNS
from anmi.evaluation.vocabulary import read_terms
from anmi.retrieval.tokenize import resolve, tokenizer

# Of the layout and of the edges; profiles of different formats are not compared.
FORMAT: Final = 1
SCORES: Final = (*SCORE_COLUMNS, "p_evidence")


def profile(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    selection: CandidateShards,
    *,
    language: str,
    kind: str = "auto",
    wanted: int = 0,
    duplicates: pd.DataFrame | None = None,
    kin: pd.DataFrame | None = None,
    made_with: Mapping[str, str] | None = None,
    hard: HardnessParams | None = None,
    most_terms: int = 200_000,
    most_texts: int = 200_000,
) -> dict[str, Any]:
    """Return what training data look like.

    Parameters
    ----------
    queries, corpus, qrels
        As :class:`anmi.corpus.types.Collection` has them. Only counts look at queries beyond the split ``train``.
    selection
        Blocks after selection, a row per query and positive; all rows of a query in one block. Read once, and of
        the measurements only the scores.
    language, kind
        Of the tokeniser, see :func:`anmi.retrieval.tokenize.tokenizer`; it counts lengths and finds new terms.
    wanted
        Negatives asked for per row.
    duplicates, kin
        As ingestion makes them, for the share of near-duplicates; left out where both are missing.
    made_with
        What scores depend on besides the data, such as recipe and encoder: a comparison names what is different.
    hard
        What makes a query hard; by default as in an evaluation, by script.
    most_terms, most_texts
        Bounds: terms kept, and training queries and documents whose texts are read, chosen by hash of their ids.

    Returns
    -------
    dict
        ``format``, ``made_with``, ``tokens`` (what lengths are counted in), ``counts``, ``distributions`` (from
        :class:`anmi.evaluation.binned.Tally`), ``shares`` (from :class:`anmi.evaluation.binned.Shares`) and
        ``vocabulary`` (from :func:`anmi.evaluation.vocabulary.read_terms`). What was not measured is not in it.
    """
    training = queries[queries["split"] == "train"]
    labels = qrels[qrels["query_id"].isin(training["query_id"])]
    tallies = {"query_length": Tally(EDGES["length"]), "document_length": Tally(EDGES["length"])}
    vocabulary = _vocabulary(training, corpus, labels, tallies, language, kind, most_terms, most_texts)
    asked = _sampled(training, "query_id", most_texts)
    tallies |= {"query_hardness": Tally(EDGES["hardness"]), "positives_per_query": Tally(EDGES["positives"])}
    tallies["query_hardness"].add(hardness(asked["text"].tolist(), hard or HardnessParams(code_mix="script")).value)
    tallies["positives_per_query"].add(labels.groupby("query_id").size().to_numpy())
    rows, scores, shares = _read_selection(selection, wanted)
    found = _without_twin({name: tally.as_dict() for name, tally in (tallies | scores).items()})
    return {
        "format": FORMAT,
        "made_with": dict(made_with or {}),
        "tokens": f"{resolve(kind, language)} ({language})",
        "counts": _counts(queries, corpus, labels) | {"training_rows": rows},
        "distributions": {name: entry for name, entry in found.items() if entry},
        "shares": shares | _near_duplicates(corpus, duplicates, kin),
        "vocabulary": vocabulary,
    }


def _without_twin(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave the evidence out where it is the only judge, and so the judgment itself: every finding would come twice."""
    kinds = ("positive", "negative", "gap")
    if any(found.get(f"{kind}_p_evidence") != found.get(f"{kind}_p_relevant") for kind in kinds):
        return found
    return {name: entry for name, entry in found.items() if not name.endswith("_p_evidence")}


def _counts(queries: pd.DataFrame, corpus: pd.DataFrame, labels: pd.DataFrame) -> dict[str, int]:
    by_split = queries["split"].value_counts()
    counts = {f"{split}_queries": int(by_split.get(split, 0)) for split in ("train", "dev", "test")}
    return counts | {"documents": len(corpus), "training_labels": len(labels)}


def _sampled(table: pd.DataFrame, key: str, most: int) -> pd.DataFrame:
    """Return at most so many rows, by hash of their ids, so that versions of a collection keep the same ones."""
    if len(table) <= most:
        return table
    hashes = pd.util.hash_array(table[key].to_numpy(object), categorize=False)
    return table.iloc[np.sort(np.argpartition(hashes, most)[:most])]


def _vocabulary(
    training: pd.DataFrame,
    corpus: pd.DataFrame,
    labels: pd.DataFrame,
    tallies: Mapping[str, Tally],
    language: str,
    kind: str,
    most_terms: int,
    most_texts: int,
) -> dict[str, Any]:
    asked, answers = _sampled(training, "query_id", most_texts), _sampled(corpus, "document_id", most_texts)
    pairs = labels[["query_id", "document_id"]].drop_duplicates()
    left = pd.Index(asked["query_id"]).get_indexer(pd.Index(pairs["query_id"]))
    right = pd.Index(answers["document_id"]).get_indexer(pd.Index(pairs["document_id"]))
    known = (left >= 0) & (right >= 0)
    return read_terms(
        document_texts(answers),
        asked["text"].tolist(),
        (left[known], right[known]),
        tokenizer(kind, language),
        most=most_terms,
        lengths={"documents": tallies["document_length"], "queries": tallies["query_length"]},
    )


def _near_duplicates(
    corpus: pd.DataFrame, duplicates: pd.DataFrame | None, kin: pd.DataFrame | None
) -> dict[str, dict[str, Any]]:
    if duplicates is None and kin is None:
        return {}
    parts = [] if duplicates is None else [duplicates["document_id"], duplicates["duplicate_of"]]
    if kin is not None:
        near = kin[kin["kind"] == "near"]
        parts += [near["document_id"], near["other_id"]]
    hit = corpus["document_id"].isin(pd.concat(parts))
    shares = Shares()
    shares.add({"near_duplicates": hit.to_numpy()}, np.ones(len(corpus)))
    return shares.as_dict()


def _read_selection(selection: CandidateShards, wanted: int) -> tuple[int, dict[str, Tally], dict[str, dict[str, Any]]]:
    """Return the number of rows in use, distributions of scores and shares, from one pass over the blocks."""
    scores: dict[str, Tally] = {}
    of_queries, of_rows, of_candidates = Shares(), Shares(), Shares()
    rows = 0
    for block in selection.only(*SCORES, "consistent"):
        _, first, unit = np.unique(block.query_ids, return_index=True, return_inverse=True)
        if "consistent" in block.query_columns:
            of_queries.add({"consistent": block.query_columns["consistent"][first] > 0}, np.ones(len(first)))
        complete = (block.query_verdict == OPEN) & (block.negatives.sum(axis=1) >= wanted)
        _count(of_rows, {"all_negatives": complete, "dropped": block.query_verdict != OPEN}, np.ones(len(block)), unit)
        kept = block.query_verdict == OPEN
        rows += int(kept.sum())
        _read_block(block.take(kept), unit[kept], scores, of_candidates)
    return rows, scores, of_queries.as_dict() | of_rows.as_dict() | of_candidates.as_dict()


def _count(shares: Shares, hits: Mapping[str, NDArray[Any]], sizes: NDArray[Any], unit: NDArray[np.intp]) -> None:
    """Add hits and sizes of rows, summed over the rows of a query."""
    shares.add({name: np.bincount(unit, weights=hit) for name, hit in hits.items()}, np.bincount(unit, weights=sizes))


def _read_block(block: Candidates, unit: NDArray[np.intp], scores: dict[str, Tally], of_candidates: Shares) -> None:
    """Add the scores of positives and negatives, their gaps, and what each step took out."""
    taken = {
        f"taken out: {name}": (block.verdict == code).sum(axis=1)
        for code, name in enumerate(block.legend)
        if code > NEGATIVE
    }
    _count(of_candidates, taken, block.filled.sum(axis=1), unit)
    row, place = np.nonzero(block.negatives)
    for name in SCORES:
        own: NDArray[np.float32] | None = None
        if name in block.positive_columns:
            own = np.where(block.positives[:, 0] != PADDING, block.positive_columns[name][:, 0], np.float32(np.nan))
            _tally(scores, f"positive_{name}", name).add(own, unit)
        if name in block.columns:
            values = block.columns[name][row, place]
            _tally(scores, f"negative_{name}", name).add(values, unit[row])
            if own is not None:
                _tally(scores, f"gap_{name}", f"gap_{name}").add(own[row] - values, unit[row])


def _tally(scores: dict[str, Tally], name: str, edges: str) -> Tally:
    return scores.setdefault(name, Tally(EDGES[edges]))
