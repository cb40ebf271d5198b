"""What Kedro-Viz shows of datasets: the first rows of tables, and nothing of what no run has made yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    import pandas as pd
    from kedro_datasets._typing import TablePreview

    from anmi.datasets.artifact import ArtifactDataset

_Preview = TypeVar("_Preview", bound=Callable[..., Any])
# Characters of a cell: a document, or a list of all candidates, would fill the page.
_LONGEST: Final = 120


def where_made(preview: _Preview) -> _Preview:
    """Make a preview None where no run has made the dataset, of which Kedro-Viz would warn in five lines each."""

    @wraps(preview)
    def shown(self: ArtifactDataset, **options: Any) -> Any:
        return preview(self, **options) if self.exists() else None

    return cast("_Preview", shown)


def table(rows: pd.DataFrame) -> TablePreview:
    """Return rows as texts, since lists and missing values are no JSON; long ones and numbers are cut."""
    return cast("TablePreview", rows.astype(object).map(_short).to_dict(orient="split"))


def _short(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
