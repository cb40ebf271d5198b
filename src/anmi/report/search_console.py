"""What a search found, as a terminal shows it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from anmi.errors import visible
from anmi.search.hits import Hit

_SNIPPET: Final = 120
_ID: Final = 40


def hits_table(question: str, hits: Sequence[Hit], kinds: Sequence[str] = ("dense",)) -> Table:
    """Return the hits of a question, best first, with rank and score by each part; – where a part does not list it.

    ``kinds`` are those of the trained retrievers.
    """
    table = Table(title=escape(visible(question)), title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("document")
    table.add_column("title and text")
    for name in ("score", "BM25: rank", "score", *(name for kind in kinds for name in (f"{kind}: rank", "score"))):
        table.add_column(name, justify="right", no_wrap=True)
    for hit in hits:
        text = f"{hit.title} – {hit.text}" if hit.title else hit.text
        cells = [
            str(hit.rank), textwrap.shorten(hit.document_id, _ID, placeholder="…"),
            textwrap.shorten(text, _SNIPPET, placeholder=" …"), f"{hit.score:.3f}",
            *(cell for part in ("bm25", *kinds)
              for cell in _part(getattr(hit, f"{part}_rank"), getattr(hit, f"{part}_score"))),
        ]  # fmt: skip
        # Ids and texts come from the collection.
        table.add_row(*(escape(visible(cell)) for cell in cells))
    return table


def _part(rank: int | None, score: float | None) -> tuple[str, str]:
    return "–" if rank is None else str(rank), "–" if score is None else f"{score:.3f}"
