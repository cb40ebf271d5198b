"""The module checks what a reader returned, so that later stages can trust it."""

from __future__ import annotations

import logging
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from scipy import sparse

from anmi.corpus.duplicates import find_duplicates, find_queries, normalised_forms
from anmi.corpus.graph_tables import stated_facts
from anmi.corpus.jsonl import to_json
from anmi.corpus.language import detect_language, language_code
from anmi.corpus.raw import MAX_DOCUMENT_CHARACTERS, Options, RawCollection
from anmi.corpus.splits import FEWEST_DEV, choose, cut
from anmi.corpus.texts import among, arrow, column, joined_texts
from anmi.corpus.types import LARGEST_RELEVANCE, SPLITS, Collection, Quarantine, empty
from anmi.errors import AnmiError

log = logging.getLogger(__name__)
_CONTROL: Final = r"[\x00-\x1f\x7f]"
_LONGEST_ID: Final = 1000
# Of two queries with the same text the one in the split further right stays.
_PRECEDENCE: Final = {"train": 0, "dev": 1, "test": 2}


def assemble(name: str, raw: RawCollection, options: Options) -> Collection:
    """Check what was read, set aside what is damaged, and cut the splits it lacks.

    Parameters
    ----------
    name
        How the collection was asked for.
    raw
        What the reader found.
    options
        See ``load_collection``.

    Raises
    ------
    AnmiError
        If two splits share a query, too much is damaged, or of the training labels nothing is left to train on. That
        there are none is no error.
    """
    for table, key in ((raw.documents, "document_id"), (raw.queries, "query_id"), (raw.qrels, "query_id"),
                          (raw.qrels, "document_id")):  # fmt: skip
        _check_ids(table, key)
    quarantine = Quarantine()
    notes: dict[str, Any] = dict(raw.notes)
    documents = _documents(raw.documents, quarantine, options)
    blank = raw.queries["text"].str.strip() == ""
    queries = quarantine.set_aside("query", raw.queries, blank, "the text is empty", damage=True)
    _no_shared_queries(raw.qrels)
    qrels, absent = _qrels(raw, documents, queries, quarantine, options)
    labelled = "train" in {*absent["split"], *qrels.loc[qrels["relevance"] > 0, "split"]}
    queries = _labelled(queries, raw.qrels, qrels, absent, quarantine)
    quarantine.check("query", len(raw.queries), options.max_quarantine)

    queries = queries.assign(normalised=column(normalised_forms(queries["text"])).set_axis(queries.index))
    queries, missing = _with_split(queries, pd.concat([qrels, absent]), options)
    if missing:
        notes["splits"] = f"{' and '.join(missing)} cut from train by a hash of the query's text"
    queries = _without_leaks(queries, quarantine)
    if not raw.same_text_is_equivalent:
        queries, qrels = _merged(queries, qrels, quarantine)
    queries = _with_absent(_subset(queries, options, notes), qrels, absent, notes)
    if not labelled:
        notes["labels"] = "none for training"
    elif not (queries["split"] == "train").any():
        table = quarantine.table()
        most = table.loc[table["kind"] == "query", "reason"].mode().tolist()
        why = (
            f"most queries were set aside ({most[0]})" if most else f"it has {(qrels['split'] == 'train').sum()} labels"
        )
        raise AnmiError(
            f'collection "{name}" has no training query with a positive, so there is nothing to mine for: {why}; '
            "label more queries of the split train"
        )

    corpus = documents[["document_id", "title", "text", "metadata"]].reset_index(drop=True)
    qrels = qrels[among(qrels["query_id"], queries["query_id"])].drop(columns="split")
    qrels = qrels.merge(queries[["query_id", "split"]], on="query_id", how="left", validate="m:1")
    irrelevant = qrels["relevance"] == 0
    judged, qrels = qrels[irrelevant], qrels[~irrelevant]
    if len(judged):
        notes["judged"] = f"{len(judged):,} labels of 0 are judged negatives"
    texts = joined_texts(corpus)
    forms = normalised_forms(texts)
    facts = raw.facts if len(raw.facts) else stated_facts(corpus, raw.graph)
    equivalents = same_text(queries, qrels) if raw.same_text_is_equivalent else superset_of_triples(corpus, qrels)
    return Collection(
        name=name,
        language=options.language or _named_language(raw.language) or detect_language(texts),
        corpus=corpus,
        queries=queries[["query_id", "text", "split", "metadata", *(["absent"] if "absent" in queries else [])]]
        .assign(same_as=pd.Series(find_queries(queries, corpus, forms), index=queries.index, dtype="str"))
        .reset_index(drop=True),
        qrels=qrels[["query_id", "document_id", "relevance", "split"]].reset_index(drop=True),
        equivalents=equivalents,
        judged=judged[["query_id", "document_id"]].reset_index(drop=True),
        graph=raw.graph[["head", "relation", "tail"]].reset_index(drop=True),
        duplicates=find_duplicates(corpus["document_id"], texts, forms),
        quarantine=pd.concat([quarantine.table(), raw.set_aside], ignore_index=True),
        notes=notes,
        entities=raw.entities.reset_index(drop=True),
        facts=facts[among(facts["document_id"], corpus["document_id"])].reset_index(drop=True),
        runs=_runs(raw.runs, queries, corpus),
        forms=forms,
    )


def _runs(rows: pd.DataFrame, queries: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return what other systems found among these documents for these queries."""
    known = rows[among(rows["query_id"], queries["query_id"]) & among(rows["document_id"], corpus["document_id"])]
    if strange := set(rows["system"]) - set(known["system"]):
        raise AnmiError(f"runs/{min(strange)} ranks no document of this corpus for a query of it; give their ids")
    return known.astype({"score": float}).reset_index(drop=True)


def _named_language(named: str | None) -> str | None:
    """Return the code of the language a source names; what is no language is not worth refusing the source."""
    try:
        return language_code(named) if named else None
    except AnmiError as error:
        log.warning("the source of the collection names its language, but %s; it is recognised from the texts", error)
        return None


def _check_ids(table: pd.DataFrame, name: str) -> None:
    """Refuse ids that other formats and programs would cut or misread: tables of ranks, TSV files, C strings."""
    for wrong, what in (
        (pc.match_substring_regex(arrow(table[name]), _CONTROL), "a control character, such as a tab or a zero byte"),
        (pc.greater(pc.utf8_length(arrow(table[name])), _LONGEST_ID), f"more than {_LONGEST_ID:,} characters"),
    ):
        if pc.any(wrong).as_py():
            first = table.iloc[pc.index(wrong, True).as_py()]
            raise AnmiError(
                f"{first['file']} line {first['line']} has an id with {what} ({first[name][:100]!r}); give it another"
            )


def _documents(rows: pd.DataFrame, quarantine: Quarantine, options: Options) -> pd.DataFrame:
    blank = (rows["text"].str.strip() == "") & (rows["title"].str.strip() == "")
    rows = quarantine.set_aside("document", rows, blank, "title and text are empty", damage=True)
    quarantine.check("document", len(blank), options.max_quarantine)
    limit = MAX_DOCUMENT_CHARACTERS
    long = rows["text"].str.len() > limit
    quarantine.add("document", rows[long], f"cut after {limit:,} characters", damage=False)
    return rows.assign(text=rows["text"].where(~long, rows["text"].str.slice(0, limit))) if long.any() else rows


def _no_shared_queries(qrels: pd.DataFrame) -> None:
    """Splits that share a query would let a model train on what it is measured by."""
    pairs = qrels.drop_duplicates(["query_id", "split"])
    shared = pairs[pairs.duplicated("query_id")]
    if shared.empty:
        return
    second = shared.iloc[0]
    first = pairs[pairs["query_id"] == second["query_id"]].iloc[0]
    raise AnmiError(
        f'query "{second["query_id"]}" is in {first["split"]} ({first["file"]} line {first["line"]}) and in '
        f"{second['split']} ({second['file']} line {second['line']}), {len(shared)} such in all; every query must "
        "be in one split only"
    )


def _qrels(
    raw: RawCollection, documents: pd.DataFrame, queries: pd.DataFrame, quarantine: Quarantine, options: Options
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the labels between known texts, and the positive ones whose document is not there; whole numbers."""
    rows = raw.qrels
    value = pd.to_numeric(rows["relevance"], errors="coerce").to_numpy(dtype=float)
    rows = rows.assign(value=value)
    bad = ~np.isfinite(value)
    rows = quarantine.set_aside("qrel", rows, bad, "the relevance is no number", damage=True)
    rows = quarantine.set_aside("qrel", rows, rows["value"] < 0, "the relevance is negative", damage=True)
    fraction = rows["value"] % 1 != 0
    rows = quarantine.set_aside("qrel", rows, fraction, "the relevance is no whole number", damage=True)
    large = rows["value"] > LARGEST_RELEVANCE
    reason = f"the relevance is larger than {LARGEST_RELEVANCE:,}"
    rows = quarantine.set_aside("qrel", rows, large, reason, damage=True)
    unknown = ~among(rows["query_id"], raw.queries["query_id"])
    rows = quarantine.set_aside("qrel", rows, unknown, "the query is unknown", damage=True)
    quarantine.check("qrel", len(raw.qrels), options.max_quarantine)
    gone = ~among(rows["query_id"], queries["query_id"])
    rows = quarantine.set_aside("qrel", rows, gone, "its query was set aside", damage=False)
    # Of a pair that is labelled twice the higher label stands.
    rows = rows.sort_values("value", ascending=False, kind="stable").drop_duplicates(["query_id", "document_id"])
    rows = rows.sort_index().astype({"value": "int64"}).drop(columns="relevance").rename(columns={"value": "relevance"})
    unknown = ~among(rows["document_id"], documents["document_id"])
    absent = rows[unknown & (rows["relevance"] > 0)]
    _none_known(absent, rows[~unknown], documents)
    rows = quarantine.set_aside("qrel", rows, unknown, "the document is not in the corpus", damage=False)
    names = ["query_id", "document_id", "relevance", "split"]
    return rows[names], absent[names]


def _none_known(absent: pd.DataFrame, known: pd.DataFrame, documents: pd.DataFrame) -> None:
    """Refuse labels of a split whose documents are all unknown, and ids that were made numbers on their way."""
    ids = absent["document_id"].to_numpy(dtype=object)
    number = np.fromiter((name.endswith(".0") for name in ids), bool, len(ids))
    number[number] = among([name[:-2] for name in ids[number]], documents["document_id"])
    wrong = absent[number | ~absent["split"].isin(set(known["split"])).to_numpy()]
    if wrong.empty:
        return
    first = wrong.iloc[0]
    told = (
        f'which the corpus calls "{first["document_id"][:-2]}": the ids were read as numbers; write them as they are'
        if number.any()
        else f"which is unknown, as are all others of {first['split']}; give the labels of this corpus"
    )
    raise AnmiError(f'{first["file"]} line {first["line"]} labels the document "{first["document_id"]}", {told}')


def _labelled(
    queries: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame, absent: pd.DataFrame, quarantine: Quarantine
) -> pd.DataFrame:
    """Set aside queries without a positive, but for those of dev and test that no search of this corpus can answer.

    Folders in the BEIR layout often carry queries of splits they have no labels for, so a query that no label names is
    no damage, and neither is one that was judged to have no answer; one whose labels all failed is.
    """
    for known, reason in (
        (before, "no label names the query"),
        (pd.concat([after, absent]), ""),
        (pd.concat([after[after["relevance"] > 0], absent]), "all labels of the query are 0"),
        (pd.concat([after, absent[absent["split"] != "train"]]), "no relevant document of the query is in the corpus"),
    ):
        bad, damage = ~among(queries["query_id"], known["query_id"]), not reason
        queries = quarantine.set_aside("query", queries, bad, reason or "the query has no positive", damage=damage)
    return queries


def _with_absent(
    queries: pd.DataFrame, qrels: pd.DataFrame, absent: pd.DataFrame, notes: dict[str, Any]
) -> pd.DataFrame:
    """Note with queries of dev and test the labels of documents that are not there, and what recall can reach."""
    measured = queries[queries["split"] != "train"].set_index("query_id")["split"]
    absent = absent[absent["query_id"].isin(measured.index)]
    if absent.empty:
        return queries
    for split in SPLITS[1:]:
        ids = measured.index[measured == split]
        here, not_here = (
            table[table["relevance"] > 0].groupby("query_id").size().reindex(ids, fill_value=0)
            for table in (qrels, absent)
        )
        if not_here.any():
            notes[f"absent from {split}"] = told = (
                f"{not_here.sum():,} of {here.sum() + not_here.sum():,} relevant documents of {split} queries are not "
                f"in the corpus; recall can reach {(here / (here + not_here)).mean():.3f}"
            )
            log.warning(told)
    listed = {
        name: to_json(dict(zip(rows["document_id"], rows["relevance"].tolist(), strict=True)))
        for name, rows in absent.groupby("query_id")
    }
    return queries.assign(absent=queries["query_id"].map(listed).fillna("").astype("str"))


def _with_split(queries: pd.DataFrame, qrels: pd.DataFrame, options: Options) -> tuple[pd.DataFrame, list[str]]:
    """Cut dev and test from train where they are missing, but no dev of fewer than 20 queries; name what was cut."""
    split = queries["query_id"].map(qrels.drop_duplicates("query_id").set_index("query_id")["split"])
    missing = [name for name in ("dev", "test") if name not in set(split)]
    queries = queries.assign(split=split)
    if not missing:
        return queries, missing
    train = (split == "train").to_numpy()
    if not train.any():
        # Dev is never cut from test: what is measured there is to be comparable with what others measure.
        return queries, []
    shares = {f"{name}_share": getattr(options, f"{name}_share") for name in missing}
    result = split.to_numpy(dtype=object, copy=True)
    result[train] = cut(queries.loc[train, "normalised"].tolist(), options.seed, **shares)
    if "dev" in missing and (result == "dev").sum() < FEWEST_DEV:
        result[result == "dev"] = "train"
        missing.remove("dev")
    return queries.assign(split=pd.Series(result, index=queries.index, dtype="str")), missing


def _without_leaks(queries: pd.DataFrame, quarantine: Quarantine) -> pd.DataFrame:
    """Set aside queries whose text is also that of a query in a split further from training."""
    order = queries["split"].map(_PRECEDENCE)
    last = order.groupby(queries["normalised"]).transform("max")
    for split in SPLITS[:2]:
        for other in SPLITS[_PRECEDENCE[split] + 1 :]:
            leak = (queries["split"] == split) & (last == _PRECEDENCE[other])
            reason = f"a {split} query with the text of a {other} query"
            quarantine.add("query", queries[leak], reason, damage=False)
    return queries[order == last]


def _merged(queries: pd.DataFrame, qrels: pd.DataFrame, quarantine: Quarantine) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make one query with all labels of those of one text, so that none has another's positives as negatives.

    The one that was read first stays. Queries of test stay as they are: what is measured on them is to be comparable
    with what others measure.
    """
    first = queries.groupby("normalised")["query_id"].transform("first")
    again = (queries["split"] != "test") & (queries["query_id"] != first)
    if not again.any():
        return queries, qrels
    reasons = 'its labels went to the query of the same text "' + first[again] + '"'
    quarantine.add("query", queries[again], reasons, damage=False)
    other = qrels["query_id"].map(dict(zip(queries["query_id"][again], first[again], strict=True)))
    qrels = qrels.assign(query_id=other.fillna(qrels["query_id"]))
    qrels = qrels.sort_values("relevance", ascending=False, kind="stable").drop_duplicates(["query_id", "document_id"])
    return queries[~again], qrels.sort_index()


def _subset(queries: pd.DataFrame, options: Options, notes: dict[str, Any]) -> pd.DataFrame:
    train = (queries["split"] == "train").to_numpy()
    if options.subset is None or train.sum() <= options.subset:
        return queries
    notes["subset"] = f"{options.subset} of {train.sum()} training queries, chosen by a hash of the query's text"
    kept = ~train
    kept[train] = choose(queries.loc[train, "normalised"].tolist(), options.subset, options.seed)
    return queries[kept]


_BLOCK = 2048


def same_text(queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return for every query the documents labelled for other queries with the same normalised text.

    Parameters
    ----------
    queries
        ``query_id, normalised``.
    qrels
        ``query_id, document_id``.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id``.
    """
    labelled = qrels[["query_id", "document_id"]].merge(queries[["query_id", "normalised"]], on="query_id")
    both = queries[["query_id", "normalised"]].merge(labelled[["normalised", "document_id"]], on="normalised")
    return _without_labelled(both[["query_id", "document_id"]].drop_duplicates(), qrels)


def superset_of_triples(corpus: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return for every query the documents that state all triples of one of its own documents.

    Parameters
    ----------
    corpus
        ``document_id, metadata``; a document's facts are ``metadata.triples``, a list of [head, relation, tail].
    qrels
        ``query_id, document_id``.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id``; empty where no document has triples.
    """
    facts = _triples(corpus)
    if not facts.shape[1] or qrels.empty:
        return empty("query_id", "document_id")
    document_ids = corpus["document_id"].to_numpy(dtype=object)
    row = pd.Series(np.arange(len(corpus)), index=corpus["document_id"])
    names, query = np.unique(qrels["query_id"].to_numpy(dtype=object), return_inverse=True)
    own, place = np.unique(row.loc[qrels["document_id"]].to_numpy(), return_inverse=True)
    membership = sparse.csr_matrix((np.ones(len(place), np.int32), (query, place)), (len(names), len(own)))
    needed = facts[own]
    size = np.asarray(needed.sum(axis=1)).ravel()
    transposed = facts.T.tocsc()
    parts = []
    for start in range(0, len(own), _BLOCK):
        shared = (needed[start : start + _BLOCK] @ transposed).tocoo()
        complete = shared.data == size[start + shared.row]
        found = np.ones(int(complete.sum()), np.int32), (shared.row[complete], shared.col[complete])
        parts.append(sparse.csr_matrix(found, shared.shape))
    stating = (membership @ sparse.vstack(parts)).tocsr()
    stating.sort_indices()
    pairs = {"query_id": np.repeat(names, np.diff(stating.indptr)), "document_id": document_ids[stating.indices]}
    return _without_labelled(pd.DataFrame(pairs, dtype="str"), qrels)


def _triples(corpus: pd.DataFrame) -> sparse.csr_matrix:
    """Return which document states which triple, int32 [N, T]."""
    stated = stated_facts(corpus, empty("head", "relation", "tail"))
    row = pd.Index(corpus["document_id"]).get_indexer(stated["document_id"])
    triple = stated.groupby(["head", "relation", "tail"]).ngroup().to_numpy()
    return sparse.csr_matrix((np.ones(len(row), np.int32), (row, triple)), (len(corpus), triple.max(initial=-1) + 1))


def _without_labelled(found: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    merged = found.merge(qrels[["query_id", "document_id"]], how="left", indicator=True)
    return merged.loc[merged["_merge"] == "left_only", ["query_id", "document_id"]].reset_index(drop=True)
