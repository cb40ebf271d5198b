"""The folder that a search is deployed as: what must be in it, and whether it is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from anmi.errors import AnmiError
from anmi.fingerprint import files_in, hash_file, hash_value

SETTINGS: Final = "hybrid.json"
README: Final = "README.md"
FORMAT: Final = 3
# A second retriever, trained beside that which a run is named after, lies in a folder of this name: within the folder
# of the first where the run trained it, beside it in a search.
COMPANION: Final = "companion"


def seal(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings with the size and SHA-256 of every other file: last, so that half a folder has none.

    All are hashed, which takes a second per gigabyte, and the settings themselves as well.
    """
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": hash_file(path, "sha256")}
        for path in files_in(folder)
        if path.name not in (SETTINGS, README)
    }
    sealed = json.loads(json.dumps({"format": FORMAT, **settings, "files": files}))
    text = json.dumps(sealed | {"digest": hash_value(sealed)}, indent=1, ensure_ascii=False)
    (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a folder, having made sure that nothing in it is missing or damaged.

    Raises
    ------
    AnmiError
        Naming the file and what is wrong with it.
    """
    again = "export it again (`kedro run --pipelines evaluation`), or copy it again, all of it"
    file = folder / SETTINGS
    if not file.is_file():
        half = f"has no {SETTINGS}, so it is no search folder or only half of one"
        raise AnmiError(f"{folder} {half if folder.is_dir() else 'is not there'}: {again}")
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        noted = settings.pop("digest", None)
        files = dict(settings["files"])
    except (ValueError, KeyError, TypeError):
        raise AnmiError(f"{file} is damaged: {again}") from None
    if settings.get("format") != FORMAT:
        raise AnmiError(
            f"{file} has the format {settings.get('format')}, and this release of anmi reads {FORMAT}: search with the "
            f"release that wrote it ({settings.get('versions', {}).get('anmi', 'unknown')}), or export it again"
        )
    if noted not in (None, hash_value(settings)):
        raise AnmiError(f"{file} is damaged ({again}), or was changed by hand: take its `digest` out")
    for name, facts in files.items():
        path = folder / name
        if not path.is_file():
            raise AnmiError(f"{path} is missing: {again}")
        if path.stat().st_size != facts["bytes"]:
            raise AnmiError(f"{path} has {path.stat().st_size} bytes and had {facts['bytes']}: {again}")
        if "sha256" in facts and hash_file(path, "sha256") != facts["sha256"]:
            raise AnmiError(f"{path} is damaged, since its SHA-256 is not the one noted in {SETTINGS}: {again}")
    return settings


def copy_model(source: Path, target: Path) -> None:
    """Copy a model, of which nothing but data is taken, without what was trained beside it."""
    from anmi.retrieval.model_folder import check_folder

    check_folder(source)
    for path in files_in(source):
        name = path.relative_to(source)
        if COMPANION not in name.parts:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


_TEXT: Final = """\
# A search over {documents:,} documents

Made by ANMI {version} of the collection `{collection}`: BM25, {trained} trained on it, and all together.

| | |
|---|---|
| `hybrid.json` | how they are put together, what that rests on, and the SHA-256 of every other file |
{models}
| `bm25/` | bm25s, with the tokeniser's settings |
| `documents.parquet` | `document_id`, `parent`, `title`, `text`: passages, each with its document |

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
    print(hit.rank, hit.document_id, hit.title, hit.bm25_rank, hit.{kind}_rank)
```

{alone_by} asks one part only.

`hybrid.json` says how the parts are fused, and on how many queries the weights were fitted.

Without ANMI, by the {kind} retriever alone (terms for BM25 are cut by a tokeniser of ANMI's):

```python
{alone}```
"""
_INDEX: Final = {
    "dense": "| `{index}/vectors.npy` | unit vectors; row i is document i of the other parts |",
    "approximate": "| `{index}/index.faiss` | FAISS, inner product of unit vectors; row i is document i of the other "
    "parts |",
    "sparse": "| `{index}/*.npy` | postings, a SciPy CSR matrix: a row per token of the model, a column per document |",
}
_MODEL: Final = "| `{model}/` | the {kind} retriever, a sentence-transformers folder |"
_ALONE: Final = {
    "dense": """\
import numpy as np
import pandas as pd
from sentence_transformers import SentenceTransformer

documents = pd.read_parquet(FOLDER + "/documents.parquet")
vectors = np.load(FOLDER + "/dense/vectors.npy", mmap_mode="r")
model = SentenceTransformer(FOLDER + "/model")
scores = vectors @ model.encode_query(QUESTION, normalize_embeddings=True)
rows = np.argsort(-scores)[:10]
print(documents.iloc[rows].assign(score=scores[rows]))
""",
    "approximate": """\
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
arrays = [np.load(f"{FOLDER}/sparse/{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
queries = FOLDER + "/model/query_0_SparseStaticEmbedding"
weights = load_file(queries + "/model.safetensors")["weight"]
postings = csr_matrix(tuple(arrays), shape=(len(weights), len(documents)))
tokens = np.unique(Tokenizer.from_file(queries + "/tokenizer.json").encode(QUESTION, add_special_tokens=False).ids)
scores = weights[tokens] @ postings[tokens]
rows = np.argsort(-scores)[:10]
print(documents.iloc[rows].assign(score=scores[rows]))
""",
}


def text_of(settings: Mapping[str, Any], exact: bool = True) -> str:
    """Return the README of a search with these settings, see :class:`anmi.search.HybridSearch`.

    ``exact`` says whether the index of vectors, where there is one, is exact, and so the vectors themselves.
    """
    places = settings["retrievers"]
    kinds = [place["kind"] for place in places]
    stored = [kind if exact or kind != "dense" else "approximate" for kind in kinds]
    models = [
        line.format(**place) for place, kept in zip(places, stored, strict=True) for line in (_MODEL, _INDEX[kept])
    ]
    return _TEXT.format(
        documents=settings["documents"],
        version=settings["versions"]["anmi"],
        collection=settings.get("collection", "unknown"),
        trained="a retriever" if len(kinds) == 1 else "two retrievers",
        models="\n".join(models),
        kind=kinds[0],
        alone_by=" or ".join(f'`system="{part}"`' for part in ("bm25", *kinds)),
        alone=_ALONE[stored[0]],
    )
