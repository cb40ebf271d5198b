"""Documents that adaptation must not see, to measure what a model does with documents that came after training."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.corpus.duplicates import normalised
from anmi.corpus.splits import position

STREAM = "adaptation/held out"


def splits(texts: Sequence[str], seed: int, share: float) -> NDArray[np.str_]:
    """Tell which documents are held out of adaptation, by a hash of their texts.

    Parameters
    ----------
    texts
        Of N documents. Documents whose texts are equal up to case and punctuation have one split.
    seed
        Keys the hash.
    share
        Expected share that is held out, in [0, 1]; half of it is ``dev``, half ``test``. Above 0 there is at least one
        document of each where there are three, or a folder of a dozen files could often not be measured.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every document, [N]. But for very few, it depends on no other document, so
        that one that is added to a corpus moves none of the others.

    Examples
    --------
    >>> splits(["a", "A."], seed=1, share=1.0).tolist() in (["dev", "dev"], ["test", "test"])
    True
    >>> sorted(splits(["a", "b", "c"], seed=1, share=0.001).tolist())
    ['dev', 'test', 'train']
    """
    place = position(seed, STREAM, [normalised(text) for text in texts])
    found = np.select([place < share / 2, place < share], ["dev", "test"], default="train")
    for name in ("test", "dev") if share > 0 else ():
        remaining = np.unique(place[found == "train"])
        if len(remaining) > 1 and name not in found:
            found[place == remaining[0]] = name
    return found


STAND_IN_STREAM = "adaptation/stand-in"
# Words that stay in their document, where any search by words finds them: asked only where a document has nothing else.
_EASY = "keyphrase"


def unlabelled_splits(queries: pd.DataFrame, qrels: pd.DataFrame) -> list[str]:
    """Return which of ``dev`` and ``test`` have no query with a label.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["train", "test"]})
    >>> unlabelled_splits(queries, pd.DataFrame({"query_id": ["a", "b"]}))
    ['dev']
    """
    labelled = set(queries.loc[queries.query_id.isin(qrels.query_id), "split"])
    return [split for split in ("dev", "test") if split not in labelled]


def with_pseudo_tests(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    splits: Collection[str],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the collection with pseudo-queries as the queries of splits that have none.

    Every held-out document of these splits asks one pseudo-query, chosen by a hash among those made of it, and what the
    pseudo-query was made of is taken out of the document's text: it would be found there without any learning. Key
    phrases, which stay in the text, are asked only where a document has nothing else. All three tables are the given
    ones where ``splits`` is empty or nothing was held out.

    Parameters
    ----------
    corpus, queries, qrels
        As in :class:`anmi.corpus.types.Collection`.
    pseudo_queries
        ``query_id, text, document_id, positive_text, kind, weight, split``.
    splits
        Among ``dev`` and ``test``: those without labels, see :func:`unlabelled_splits`.
    """
    made = pseudo_queries[pseudo_queries.split.isin(list(splits))]
    if made.empty:
        return corpus, queries, qrels
    made = made.iloc[np.lexsort((position(0, STAND_IN_STREAM, made.query_id.tolist()), made.kind == _EASY))]
    made = made.drop_duplicates("document_id").sort_values("document_id").reset_index(drop=True)
    texts = corpus.document_id.map(made.set_index("document_id").positive_text)
    changed = corpus.assign(title=corpus.title.where(texts.isna(), ""), text=texts.where(texts.notna(), corpus.text))
    asked = pd.DataFrame(dict.fromkeys(queries.columns, ""), index=made.index).assign(
        query_id=made.query_id, text=made.text, split=made.split
    )
    if "metadata" in asked:
        asked["metadata"] = "{}"
    if "mined" in asked:
        asked["mined"] = False
    labels = pd.DataFrame({"query_id": made.query_id, "document_id": made.document_id, "relevance": 1})
    if "split" in qrels:
        labels["split"] = made.split
    return (
        changed,
        pd.concat([queries, asked], ignore_index=True),
        pd.concat([qrels, labels.astype(qrels.dtypes[labels.columns].to_dict())], ignore_index=True),
    )
