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
# A path is shown whole, on several lines if need be, so that the file can be opened.
_ID: Final = 200
_ID_WIDTH: Final = 40


def hits_table(question: str, hits: Sequence[Hit], kinds: Sequence[str] = ("dense",)) -> Table:
    """Return the hits of a question, best first, with rank and score by each part; – where a part does not list it.

    ``kinds`` are those of the trained retrievers.
    """
    table = Table(title=escape(visible(question)), title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("document", overflow="fold", max_width=_ID_WIDTH)
    table.add_column("title and text")
    parts = [f"{part}\n{figure}" for part in ("BM25", *kinds) for figure in ("rank", "score")]
    for name in ("score", *parts):
        table.add_column(name, justify="right", no_wrap=True)
    for hit in hits:
        text = f"{hit.title} – {hit.text}" if hit.title else hit.text
        cells = [
            str(hit.rank), _cut(hit.document_id),
            textwrap.shorten(text, _SNIPPET, placeholder=" …"), f"{hit.score:.3f}",
            *(cell for part in ("bm25", *kinds)
              for cell in _part(getattr(hit, f"{part}_rank"), getattr(hit, f"{part}_score"))),
        ]  # fmt: skip
        # Ids and texts come from the collection.
        table.add_row(*(escape(visible(cell)) for cell in cells))
    return table


def _cut(name: str) -> str:
    return name if len(name) <= _ID else f"{name[: _ID - 1]}…"


def _part(rank: int | None, score: float | None) -> tuple[str, str]:
    return "–" if rank is None else str(rank), "–" if score is None else f"{score:.3f}"
