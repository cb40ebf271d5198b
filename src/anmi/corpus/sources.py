"""The module reads, checks and splits the collection that a string names.

A new kind of source is one function from (location, options) to
:class:`anmi.corpus.types.RawCollection` and one line in :data:`anmi.corpus.places.READERS`.
"""

from __future__ import annotations

import importlib
import logging
import zlib
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.corpus.knowledge import stated_facts, superset_of_triples
from anmi.corpus.places import READERS, kind_and_place
from anmi.corpus.sentences import TURNING, detect_language, stop_words
from anmi.corpus.texts import (
    among,
    arrow,
    find_duplicates,
    find_queries,
    joined_texts,
    normalised_forms,
    pairs_among,
    telling,
    without_signs,
)
from anmi.corpus.types import (
    FEWEST_DEV,
    LARGEST_RELEVANCE,
    SPLITS,
    Collection,
    Options,
    Quarantine,
    RawCollection,
)
from anmi.errors import AnmiError
from anmi.fingerprint import digest
from anmi.ragged import Bools
from anmi.seeds import choose, cut

log = logging.getLogger(__name__)
_CONTROL: Final = r"[\x00-\x1f\x7f]"
_LONGEST_ID: Final = 1000
_LONG: Final = f"more than {_LONGEST_ID:,} characters"
_LONGEST_DOCUMENT: Final = 1_000_000


def load_collection(collection: str, **options: Any) -> Collection:
    """Read, check and split the collection that one string names.

    Parameters
    ----------
    collection
        ``api_docs`` | ``beir:DIR`` | ``kg:DIR`` | ``pairs:GLOB[;GLOB…]`` | ``docs:GLOB[;GLOB…]`` |
        ``ir_datasets:ID``
        | ``hf:PATH_OR_NAME[:CONFIG][:SPLIT]``.
    options
        See :class:`anmi.corpus.types.Options`.

    Returns
    -------
    Collection
        The same in every process for the same input and options.

    Raises
    ------
    AnmiError
        If the string or what it names is wrong.
    """
    settings = Options(**options)
    kind, location = kind_and_place(collection)
    if "\0" in location:
        raise AnmiError(
            f'collection "{collection[:200]}" has a zero byte in its place; no file is called so'
        )
    module, _, function = READERS[kind][0].partition(":")
    try:
        raw: RawCollection = getattr(importlib.import_module(module), function)(location, settings)
    except RecursionError:
        raise
    except (OSError, RuntimeError, EOFError, zlib.error) as error:
        # An unknown home, a name too long for a file, a folder without permission: the error says
        # which.
        raise AnmiError(
            f'collection "{collection[:200]}" cannot be read ({error}); check its place'
        ) from error
    return assemble(collection, raw, settings)


def fingerprint(collection: Collection) -> str:
    """Return a hash of corpus, queries and qrels in their order: 32 hexadecimal digits."""
    column_hashes: list[bytes] = []
    for table in (collection.corpus, collection.queries, collection.qrels):
        column_hashes += [
            digest(name, *arrow(table[name]).to_pylist()) for name in sorted(table.columns)
        ]
    return digest(*column_hashes).hex()


def assemble(name: str, raw: RawCollection, options: Options) -> Collection:
    """Check what was read, set aside what is damaged, and cut the splits it lacks.

    Parameters
    ----------
    name
        The string that names the collection.
    raw
        What the reader found.
    options
        See :class:`anmi.corpus.types.Options`.

    Raises
    ------
    AnmiError
        If two splits share a query, too much is damaged, or none of the training labels is left. A
        collection without training labels is no error.
    """
    quarantine = Quarantine()
    notes = dict(raw.notes)
    documents, queries, labels = _checked(raw, quarantine, options)
    queries = _with_splits(_with_forms(queries), labels, options, notes)
    queries = _without_leaks(queries, quarantine)
    qrels = labels
    if not raw.same_text_is_equivalent:
        queries, qrels = _merged(queries, qrels, quarantine)
    queries = _subset(queries, options, notes)
    set_aside = quarantine.table()
    if "train" not in set(labels.loc[labels["relevance"] > 0, "split"]):
        notes["labels"] = "none for training"
    elif not (queries["split"] == "train").any():
        raise _nothing_to_mine(name, set_aside)

    corpus = _plain(documents, "document_id", "title", "text", "metadata")
    qrels = qrels[among(qrels["query_id"], queries["query_id"])].drop(columns="split")
    splits = queries[["query_id", "split"]]
    qrels = qrels.merge(splits, on="query_id", how="left", validate="m:1")
    qrels, present, judged = _by_relevance(qrels, corpus)
    _note_labels(qrels, present, judged, options, notes)
    texts = joined_texts(corpus)
    forms = normalised_forms(texts)
    language = options.language or detect_language(texts)
    _note_near(queries, language, notes)
    facts = raw.facts if len(raw.facts) else stated_facts(corpus, raw.graph)
    same_as = find_queries(queries, corpus, forms)
    queries = queries.assign(same_as=same_as).astype({"same_as": "str"})
    equivalents = (
        same_text(queries, qrels[present])
        if raw.same_text_is_equivalent
        else superset_of_triples(corpus, qrels[present])
    )
    return Collection(
        name=name,
        language=language,
        corpus=corpus,
        queries=_plain(queries, "query_id", "text", "split", "metadata", "same_as"),
        qrels=_plain(qrels, "query_id", "document_id", "relevance", "split"),
        equivalents=equivalents,
        graph=_plain(raw.graph, "head", "relation", "tail"),
        duplicates=find_duplicates(corpus["document_id"], forms),
        quarantine=pd.concat([set_aside, raw.set_aside], ignore_index=True),
        notes=notes,
        entities=_plain(raw.entities),
        facts=_plain(facts[among(facts["document_id"], corpus["document_id"])]),
        judged=_plain(judged, "query_id", "document_id"),
        runs=_plain(_runs(raw.runs, queries, corpus)),
        forms=forms,
    )


def _checked(
    raw: RawCollection,
    quarantine: Quarantine,
    options: Options,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return documents, queries and labels without the damaged ones."""
    _check_ids(raw.documents, raw.queries, raw.qrels)
    documents = _documents(raw.documents, quarantine, options)
    queries = _once("query", raw.queries, quarantine)
    blank = queries["text"].str.strip() == ""
    queries = quarantine.set_aside("query", queries, blank, "the text is empty", damage=True)
    _check_splits(raw.qrels)
    labels = _labels(raw, documents, queries, quarantine, options)
    queries = _labelled(queries, raw.qrels, labels, documents, quarantine)
    quarantine.check("query", len(raw.queries), options.max_quarantine)
    return documents, queries, labels


def _with_forms(queries: pd.DataFrame) -> pd.DataFrame:
    """Add the normalised texts, and the words by which splits are drawn."""
    queries = queries.assign(normalised=normalised_forms(queries["text"]).to_pylist())
    # Queries that differ in signs alone are drawn together, too.
    first_texts = queries.groupby("normalised")["text"].transform("first")
    return queries.assign(words=first_texts.map(without_signs).astype("str"))


def _plain(table: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return these columns of a table, or all, with rows numbered from 0."""
    return table[[*(names or table.columns)]].reset_index(drop=True)


def _nothing_to_mine(name: str, set_aside: pd.DataFrame) -> AnmiError:
    reasons = set_aside.loc[set_aside["kind"] == "query", "reason"].mode().tolist()
    cause = f"most queries were set aside ({reasons[0]})" if reasons else "it has no such label"
    return AnmiError(
        f'collection "{name}" has no training query with a positive, so there is nothing to mine'
        f" for: {cause}; label more queries of the split train"
    )


def _runs(
    runs: pd.DataFrame,
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
) -> pd.DataFrame:
    """Return the rows of runs that rank documents of the corpus for its queries."""
    ranks_known = among(runs["query_id"], queries["query_id"])
    ranks_known &= among(runs["document_id"], corpus["document_id"])
    known_runs = runs[ranks_known]
    if strange_systems := set(runs["system"]) - set(known_runs["system"]):
        raise AnmiError(
            f"runs/{min(strange_systems)} ranks no document of this corpus for a query of it; give"
            " their ids"
        )
    return known_runs


def _subset(
    queries: pd.DataFrame,
    options: Options,
    notes: dict[str, Any],
) -> pd.DataFrame:
    """Return the queries with no more than so many of train, chosen by a hash of their texts."""
    train = (queries["split"] == "train").to_numpy()
    if options.subset is None or train.sum() <= options.subset:
        return queries
    notes["subset"] = (
        f"{options.subset} of {train.sum()} training queries, chosen by a hash of the query's text"
    )
    is_chosen = ~train
    is_chosen[train] = choose(queries.loc[train, "words"].tolist(), options.subset, options.seed)
    return queries[is_chosen]


def _check_ids(*tables: pd.DataFrame) -> None:
    """Refuse ids that TSV files, tables of ranks and C strings would cut or misread."""
    for table in tables:
        for ids in (table[name] for name in ("query_id", "document_id") if name in table):
            control = ids.str.contains(_CONTROL, regex=True)
            long = ids.str.len() > _LONGEST_ID
            if (control | long).any():
                bad_row: Any = table[control | long].iloc[0]
                problem = "a control character" if control[bad_row.name] else _LONG
                raise AnmiError(
                    f"{bad_row['file']} line {bad_row['line']} has an id with {problem}"
                    f" ({bad_row[ids.name][:100]!r}); give it another"
                )


def _once(
    kind: str,
    rows: pd.DataFrame,
    quarantine: Quarantine,
) -> pd.DataFrame:
    """Set aside what repeats an earlier row word for word."""
    again = rows[f"{kind}_id"].duplicated()
    return quarantine.set_aside(kind, rows, again, "the same row stands there before")


def _documents(
    rows: pd.DataFrame,
    quarantine: Quarantine,
    options: Options,
) -> pd.DataFrame:
    rows = _once("document", rows, quarantine)
    blank = (rows["text"].str.strip() == "") & (rows["title"].str.strip() == "")
    rows = quarantine.set_aside("document", rows, blank, "title and text are empty", damage=True)
    quarantine.check("document", len(blank), options.max_quarantine)
    long = rows["text"].str.len() > _LONGEST_DOCUMENT
    quarantine.set_aside("document", rows, long, f"cut after {_LONGEST_DOCUMENT:,} characters")
    return rows.assign(text=rows["text"].str.slice(0, _LONGEST_DOCUMENT)) if long.any() else rows


def _check_splits(qrels: pd.DataFrame) -> None:
    """Refuse splits that share a query: a model would train on what it is measured by."""
    pairs = qrels.drop_duplicates(["query_id", "split"])
    shared = pairs[pairs.duplicated("query_id")]
    if len(shared):
        second = shared.iloc[0]
        first = pairs[pairs["query_id"] == second["query_id"]].iloc[0]
        raise AnmiError(
            f'query "{second["query_id"]}" is in {first["split"]} ({first["file"]} line'
            f" {first['line']}) and in {second['split']} ({second['file']} line {second['line']}),"
            f" {len(shared)} such in all; every query must be in one split only"
        )


def _labels(
    raw: RawCollection,
    documents: pd.DataFrame,
    queries: pd.DataFrame,
    quarantine: Quarantine,
    options: Options,
) -> pd.DataFrame:
    """Return the labels of queries that are there, 0 for all below the first relevant grade."""
    relevance = pd.to_numeric(raw.qrels["relevance"], errors="coerce").to_numpy(float)
    relevance = np.where(np.isfinite(relevance), relevance, np.nan)
    reasons = {
        "the relevance is no number": np.isnan(relevance),
        "the relevance is no whole number": relevance % 1 != 0,
        f"the relevance is larger than {LARGEST_RELEVANCE:,}": relevance > LARGEST_RELEVANCE,
        "the query is unknown": ~among(raw.qrels["query_id"], raw.queries["query_id"]),
    }
    reason = pd.Series(np.select(list(reasons.values()), list(reasons), ""), raw.qrels.index)
    rows = raw.qrels.assign(relevance=relevance)
    rows = quarantine.set_aside("qrel", rows, reason != "", reason, damage=True)
    quarantine.check("qrel", len(raw.qrels), options.max_quarantine)
    gone = ~among(rows["query_id"], queries["query_id"])
    rows = quarantine.set_aside("qrel", rows, gone, "its query was set aside")
    rows = rows.astype({"relevance": "int64"})
    highest = rows.groupby(["query_id", "document_id"])["relevance"].transform("max")
    is_lower = rows["relevance"] < highest
    rows = quarantine.set_aside("qrel", rows, is_lower, "another label of the pair is higher")
    rows = _highest(rows)
    relevant = rows["relevance"] >= options.relevant_from
    rows = rows.assign(relevance=rows["relevance"].where(relevant, 0))
    in_corpus = among(rows["document_id"], documents["document_id"])
    is_lost = ~in_corpus & (rows["relevance"] > 0)
    is_lost &= ~among(rows["split"], rows["split"][in_corpus])
    if is_lost.any():
        lost_row = rows[is_lost].iloc[0]
        raise AnmiError(
            f"{lost_row['file']} line {lost_row['line']} labels the document"
            f' "{lost_row["document_id"]}", which is unknown, as are all others of'
            f" {lost_row['split']}; give the labels of this corpus, with its ids as written"
        )
    quarantine.set_aside("qrel", rows, ~in_corpus, "the document is not in the corpus")
    return rows


def _by_relevance(
    qrels: pd.DataFrame,
    corpus: pd.DataFrame,
) -> tuple[pd.DataFrame, Bools, pd.DataFrame]:
    """Return labels of relevant documents, which of these the corpus has, and judged negatives."""
    present = among(qrels["document_id"], corpus["document_id"])
    judged = qrels[(qrels["relevance"] == 0) & present]
    # What is measured counts documents that are not there as well, as trec_eval does.
    counted = (qrels["relevance"] > 0) & (present | (qrels["split"] != "train"))
    return qrels[counted], present[counted], judged


def _highest(qrels: pd.DataFrame) -> pd.DataFrame:
    """Keep the highest label of each pair."""
    ordered = qrels.sort_values("relevance", ascending=False, kind="stable")
    return ordered.drop_duplicates(["query_id", "document_id"]).sort_index()


def _labelled(
    queries: pd.DataFrame,
    written: pd.DataFrame,
    labels: pd.DataFrame,
    documents: pd.DataFrame,
    quarantine: Quarantine,
) -> pd.DataFrame:
    """Set aside queries without a positive, and in train without one in the corpus.

    Folders in the BEIR layout often carry queries of splits they have no labels for, so a query
    that no label names is no damage, and neither is one that was judged to have no answer; one
    whose labels all failed is.
    """
    positive = labels[labels["relevance"] > 0]
    usable = (positive["split"] != "train") | among(
        positive["document_id"], documents["document_id"]
    )
    for required_labels, reason in (
        (written, "no label names the query"),
        (labels, "the query has no positive"),
        (positive, "no label of the query is of a relevant grade"),
        (positive[usable], "no relevant document of the query is in the corpus"),
    ):
        bad = ~among(queries["query_id"], required_labels["query_id"])
        is_damage = required_labels is labels
        queries = quarantine.set_aside("query", queries, bad, reason, damage=is_damage)
    return queries


def _note_labels(
    qrels: pd.DataFrame,
    present: Bools,
    judged: pd.DataFrame,
    options: Options,
    notes: dict[str, Any],
) -> None:
    """Note judged negatives, and what recall can reach where relevant documents are absent."""
    if len(judged):
        notes["judged"] = (
            f"{len(judged):,} labels below {options.relevant_from} are judged negatives"
        )
    for split, labels in qrels.assign(present=present).groupby("split"):
        if not labels["present"].all():
            ceiling = labels.groupby("query_id")["present"].mean().mean()
            notes[f"absent from {split}"] = (
                f"recall of {split} queries can reach at most {ceiling:.3f}, since"
                f" {1 - labels['present'].mean():.0%} of their relevant documents are not in the"
                " corpus"
            )
            log.warning(notes[f"absent from {split}"])


def _with_splits(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    options: Options,
    notes: dict[str, Any],
) -> pd.DataFrame:
    """Cut dev and test from train where they are missing, but no dev of fewer than 20 queries.

    Dev is never cut from test: what is measured there should be comparable with what others
    measure.
    """
    labelled_splits = qrels.drop_duplicates("query_id").set_index("query_id")["split"]
    split = queries["query_id"].map(labelled_splits)
    train = (split == "train").to_numpy()
    missing = [name for name in SPLITS[1:] if name not in set(split)] if train.any() else []
    if missing:
        shares = {f"{name}_share": getattr(options, f"{name}_share") for name in missing}
        cut_splits = cut(queries.loc[train, "words"].tolist(), options.seed, **shares)
        if (cut_splits == "dev").sum() < FEWEST_DEV:
            cut_splits[cut_splits == "dev"] = "train"
        missing = [name for name in missing if name in cut_splits]
        split = split.astype(object)
        split[train] = cut_splits
    if missing:
        notes["splits"] = f"{' and '.join(missing)} cut from train by a hash of the query's text"
    return queries.assign(split=split.astype("str"))


def _without_leaks(queries: pd.DataFrame, quarantine: Quarantine) -> pd.DataFrame:
    """Set aside queries whose text is also that of a query in a split further from training."""
    order = queries["split"].map({split: place for place, split in enumerate(SPLITS)})
    last = order.groupby(queries["normalised"]).transform("max")
    last_split = last.map(dict(enumerate(SPLITS)))
    reason = "a " + queries["split"] + " query with the text of a " + last_split + " query"
    return quarantine.set_aside("query", queries, order != last, reason)


def _note_near(
    queries: pd.DataFrame,
    language: str,
    notes: dict[str, Any],
) -> None:
    """Note the training queries that say almost what a dev or test query says."""
    stop = stop_words(language) - TURNING
    words = queries["normalised"].map(lambda form: telling(form, stop))
    train = queries["split"] == "train"
    near = train & words.isin(words[~train]) & (words != "")
    if near.any():
        notes["near_copies"] = note = (
            "training queries that differ from a dev or test query only in stop words or in"
            f" letters that look alike: {near.sum():,}, the first of them"
            f' "{queries["query_id"][near].iloc[0]}"; they stay'
        )
        log.warning(note)


def _merged(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    quarantine: Quarantine,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make one query of those of one text, with the labels of all.

    Else one would have another's positives as negatives. The first stays. Queries of test stay as
    they are: what is measured on them should be comparable with what others measure.
    """
    first = queries.groupby("normalised")["query_id"].transform("first")
    again = (queries["split"] != "test") & (queries["query_id"] != first)
    if not again.any():
        return queries, qrels
    merged_id = qrels["query_id"].map(first[again].set_axis(queries["query_id"][again]))
    reasons = 'its labels went to the query of the same text "' + first[again] + '"'
    queries = quarantine.set_aside("query", queries, again, reasons)
    return queries, _highest(qrels.assign(query_id=merged_id.fillna(qrels["query_id"])))


def same_text(queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return ``query_id, document_id``: documents labelled for another query of the same text."""
    pair = ["query_id", "document_id"]
    forms = queries[["query_id", "normalised"]]
    labelled = qrels[pair].merge(forms, on="query_id").drop(columns="query_id")
    equivalents = forms.merge(labelled, on="normalised")[pair].drop_duplicates()
    return equivalents[~pairs_among(equivalents, qrels)].reset_index(drop=True)
