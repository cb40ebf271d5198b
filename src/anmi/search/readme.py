"""What stands in the folder of a search for those who find it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TEXT: Final = """\
# A search over {documents:,} documents

Made by ANMI {version} of the collection `{collection}`: BM25, an encoder that was trained on it, and both together.

| | |
|---|---|
| `hybrid.json` | how the two are put together, what that rests on, and the SHA-256 of every other file |
| `model/` | the encoder, a sentence-transformers folder |
{index}
| `bm25/` | bm25s, with the tokeniser's settings |
| `documents.parquet` | `document_id`, `title`, `text` |

## Searching

On the command line:

```sh
kedro anmi search "your question" --folder FOLDER
```

In Python, with `pip install anmi`:

```python
from anmi.search import HybridSearch

search = HybridSearch.load(FOLDER)
for hit in search.search(QUESTION, k=10)[0]:
    print(hit.rank, hit.document_id, hit.title, hit.bm25_rank, hit.dense_rank)
```

`system="bm25"` or `system="{kind}"` asks one part only.

Without ANMI, by the encoder alone (terms for BM25 are cut by a tokeniser of ANMI's):

```python
{alone}```

## How the two are put together

{how}
{figures}"""
_INDEX: Final = {
    "dense": "| `dense/index.faiss` | FAISS, inner product of unit vectors; row i is document i of the other parts |",
    "sparse": "| `dense/*.npy` | postings, a SciPy CSR matrix: a row per token of the model, a column per document |",
}
_ALONE: Final = {
    "dense": """\
import faiss
import pandas as pd
from sentence_transformers import SentenceTransformer

documents = pd.read_parquet(FOLDER + "/documents.parquet")
index = faiss.read_index(FOLDER + "/dense/index.faiss")
model = SentenceTransformer(FOLDER + "/model")
scores, rows = index.search(model.encode_query([QUESTION], normalize_embeddings=True), 10)
print(documents.iloc[rows[0]].assign(score=scores[0]))
""",
    "sparse": """\
import numpy as np
import pandas as pd
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer

documents = pd.read_parquet(FOLDER + "/documents.parquet")
arrays = [np.load(f"{FOLDER}/dense/{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
queries = FOLDER + "/model/query_0_SparseStaticEmbedding"
weights = load_file(queries + "/model.safetensors")["weight"]
postings = csr_matrix(tuple(arrays), shape=(len(weights), len(documents)))
tokens = np.unique(Tokenizer.from_file(queries + "/tokenizer.json").encode(QUESTION, add_special_tokens=False).ids)
scores = weights[tokens] @ postings[tokens]
rows = np.argsort(-scores)[:10]
print(documents.iloc[rows].assign(score=scores[rows]))
""",
}
_CONVEX: Final = """\
The best {depth} of each part are fused. The score of a document is

    {weight:g} · {score} / {dense_spread:.4g} + {other:g} · BM25 / s

where s is the standard deviation of the query's BM25 scores over all documents, and a document that one part does not
list counts there as the last that it lists."""
_RRF: Final = "The best {depth} of each part are fused by reciprocal ranks: Σ 1 / (60 + rank)."
_OF: Final = {
    "labels": "dev queries",
    "pseudo_queries": "pseudo-queries made of documents that were held out of training, a weaker proof than labels",
}


def text_of(settings: Mapping[str, Any], kind: str) -> str:
    """Return the README of a search with these settings and kind, see :class:`anmi.search.HybridSearch`."""
    convex = settings["method"] == "convex"
    how = (_CONVEX if convex else _RRF).format(
        **settings, score="cosine" if kind == "dense" else "inner product", other=round(1 - settings["weight"], 4)
    )
    fit = settings.get("fit") or {}
    figures = ""
    if fit.get("queries"):
        which = ", whose documents training did not know as answers" if fit["kind"] == "unseen" else ""
        figures = (
            f"\nThe weight was fitted on {fit['queries']:,} {_OF[fit['of']]}{which}, with the encoder as it was before "
            "it was trained on them; 95 % of resamples of these queries have their best weight between "
            f"{fit['low']:.2f} and {fit['high']:.2f}. Their mean nDCG@10: "
            + ", ".join(f"{name} {value:.3f}" for name, value in fit["ndcg@10"].items())
            + ".\n"
        )
    index, alone = _INDEX[kind], _ALONE[kind]
    version, collection = settings["versions"]["anmi"], settings.get("collection", "unknown")
    return _TEXT.format(
        **{
            **settings,
            "how": how,
            "figures": figures,
            "version": version,
            "collection": collection,
            "kind": kind,
            "index": index,
            "alone": alone,
        }
    )
