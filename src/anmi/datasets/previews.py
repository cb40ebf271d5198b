"""What Kedro-Viz shows of datasets: the first rows of tables, and nothing of what no run has made yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    import pandas as pd
    from kedro_datasets._typing import TablePreview

    from anmi.datasets.artifact import ArtifactDataset

_Dataset = TypeVar("_Dataset", bound="ArtifactDataset")
_Options = ParamSpec("_Options")
_Shown = TypeVar("_Shown")
# Characters of a cell: a document, or a list of all candidates, would fill the page.
_LONGEST: Final = 120


def where_made(
    preview: Callable[Concatenate[_Dataset, _Options], _Shown],
) -> Callable[Concatenate[_Dataset, _Options], _Shown | None]:
    """Make a preview None where no run has made the dataset, of which Kedro-Viz would warn in five lines each."""

    @wraps(preview)
    def shown(self: _Dataset, *given: _Options.args, **options: _Options.kwargs) -> _Shown | None:
        return preview(self, *given, **options) if self.exists() else None

    return shown


def table(rows: pd.DataFrame) -> TablePreview:
    """Return rows as texts, since lists and missing values are no JSON; long ones and numbers are cut."""
    return cast("TablePreview", rows.astype(object).map(_short).to_dict(orient="split"))


def _short(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
