"""What training data look like, in a few hundred kilobytes: enough to say later whether other data are like them.

Every number is of one query or one document, never of a single negative: the negatives of a query are alike, and only
what is independent may go into a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import NEGATIVE, OPEN, PADDING, Candidates, CandidateShards
from anmi.corpus.hardness import HardnessParams, hardness
from anmi.corpus.related import COPY, NEAR
from anmi.corpus.texts import document_texts
from anmi.evaluation.distributions import SCORE_COLUMNS
from anmi.evaluation.vocabulary import read_terms
from anmi.retrieval.tokenize import resolve, tokenizer

# Of the layout; profiles of different formats are not compared.
FORMAT: Final = 2
SCORES: Final = (*SCORE_COLUMNS, "p_evidence")
_SCORED: Final = ("positive_", "negative_", "gap_")
# Values kept of each distribution: enough to be sure of a Kolmogorov-Smirnov distance of 0.07 among 30 tests at 0.01.
VALUES: Final = 2_000


def profile(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    selection: CandidateShards,
    *,
    language: str,
    kind: str = "auto",
    wanted: int = 0,
    related: pd.DataFrame | None = None,
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
        Blocks after selection, a row per query and positive. Read once, and of the measurements only the scores.
    language, kind
        Of the tokeniser, see :func:`anmi.retrieval.tokenize.tokenizer`; it counts lengths and finds new terms.
    wanted
        Negatives asked for per row.
    related
        Documents by :func:`anmi.corpus.related.find_related`, for the share of near-duplicates; left out without.
    made_with
        What scores depend on besides the data, such as recipe and encoder: a comparison names what is different.
    hard
        What makes a query hard; by default as in an evaluation, by script.
    most_terms, most_texts
        Bounds: terms kept, and training queries and documents whose texts are read, chosen by hash of their ids.

    Returns
    -------
    dict
        ``format``, ``made_with``, ``tokens`` (what lengths are counted in), ``counts``, ``distributions`` (a sorted
        sample of at most 2,000 values each, a query or document one value), ``shares`` (``share`` and ``count``, of how
        many queries or documents) and ``vocabulary`` of documents and queries (from
        :func:`anmi.evaluation.vocabulary.read_terms`). What was not measured is not in it.
    """
    training = queries[queries["split"] == "train"]
    labels = qrels[qrels["query_id"].isin(training["query_id"])]
    asked, answers = _sampled(training, "query_id", most_texts), _sampled(corpus, "document_id", most_texts)
    tokenize = tokenizer(kind, language)
    of_documents, document_length = read_terms(document_texts(answers), tokenize, most_terms)
    of_queries, query_length = read_terms(asked["text"].tolist(), tokenize, most_terms)
    few, some = (_sampled(table, key, VALUES) for table, key in ((asked, "query_id"), (answers, "document_id")))
    rows, table = _read_selection(selection, wanted, few["query_id"])
    distributions = {
        "query_length": query_length[asked.index.isin(few.index)],
        "document_length": document_length[answers.index.isin(some.index)],
        "query_hardness": hardness(few["text"].tolist(), hard or HardnessParams(code_mix="script")).value,
        "positives_per_query": labels[labels["query_id"].isin(few["query_id"])].groupby("query_id").size().to_numpy(),
    }
    shares = {}
    for name in table.columns.astype(str):
        known = table[name].dropna()
        if name.startswith(_SCORED):
            distributions[name] = known.to_numpy()
        elif len(known):
            shares[name] = {"share": float(known.mean()), "count": len(known)}
    return {
        "format": FORMAT,
        "made_with": dict(made_with or {}),
        "tokens": f"{resolve(kind, language)} ({language})",
        "counts": _counts(queries, corpus, labels) | {"training_rows": rows},
        "distributions": _without_twin({name: _values(found) for name, found in distributions.items() if len(found)}),
        "shares": shares | _near_duplicates(corpus, related),
        "vocabulary": {"documents": of_documents, "queries": of_queries},
    }


def _values(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in np.sort(values).tolist()]


def _without_twin(found: dict[str, list[float]]) -> dict[str, list[float]]:
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


def _near_duplicates(corpus: pd.DataFrame, related: pd.DataFrame | None) -> dict[str, dict[str, Any]]:
    if related is None:
        return {}
    near = related[related["kind"].isin((COPY, NEAR))]
    parts = [near["document_id"], near["other_id"]]
    hit = corpus["document_id"].isin(pd.concat(parts))
    return {"near_duplicates": {"share": float(hit.mean()), "count": len(corpus)}} if len(corpus) else {}


def _read_selection(selection: CandidateShards, wanted: int, sampled: pd.Series[str]) -> tuple[int, pd.DataFrame]:
    """Return the number of rows in use and, of the sampled queries, measurements by name, a query a row."""
    parts, rows, steps = [], 0, dict[str, None]()
    ids = sampled.to_numpy(str)
    for block in selection.only(*SCORES, "consistent"):
        rows += int((block.query_verdict == OPEN).sum())
        parts.append(_measured(block.take(np.isin(block.query_ids, ids)), wanted))
        steps |= dict.fromkeys(f"taken out: {name}" for name in block.legend[NEGATIVE + 1 :])
    if not parts:
        return 0, pd.DataFrame()
    table = pd.concat(parts)
    # A step that a block does not know took nothing out there.
    used = table[[*steps]].notna().any(axis=1)
    table.loc[used, [*steps]] = table.loc[used, [*steps]].fillna(0.0)
    return rows, table.groupby("query_id").mean()


def _measured(block: Candidates, wanted: int) -> pd.DataFrame:
    """Return what is measured of each row: scores of its positive and means over its negatives, and what took out."""
    used = block.query_verdict == OPEN
    found: dict[str, Any] = {
        "all_negatives": used & (block.negatives.sum(axis=1) >= wanted),
        "dropped": ~used,
    }
    if "consistent" in block.query_columns:
        found["consistent"] = block.query_columns["consistent"] > 0
    sizes = np.where(used, block.filled.sum(axis=1), 0)
    for code, name in enumerate(block.legend[NEGATIVE + 1 :], NEGATIVE + 1):
        found[f"taken out: {name}"] = _ratio((block.verdict == code).sum(axis=1), sizes)
    for name in SCORES:
        if name in block.positive_columns:
            known = used & (block.positives[:, 0] != PADDING)
            found[f"positive_{name}"] = np.where(known, block.positive_columns[name][:, 0], np.nan)
        if name in block.columns:
            scored = block.negatives & np.isfinite(block.columns[name])
            total = np.where(scored, block.columns[name], 0).sum(axis=1, dtype=np.float64)
            found[f"negative_{name}"] = _ratio(total, np.where(used, scored.sum(axis=1), 0))
        if name in block.columns and name in block.positive_columns:
            found[f"gap_{name}"] = found[f"positive_{name}"] - found[f"negative_{name}"]
    return pd.DataFrame(found, dtype=np.float64).assign(query_id=block.query_ids)


def _ratio(numerator: Any, denominator: Any) -> Any:
    """Return quotients, NaN where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.full(len(denominator), np.nan), where=denominator > 0)
