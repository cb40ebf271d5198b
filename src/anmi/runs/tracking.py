"""Where runs are tracked: the settings of the environment, the address, and MLflow without its own words."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kedro.framework.context import KedroContext
from pydantic import BaseModel, ConfigDict, ValidationError

from anmi.errors import AnmiError


class TrackingSettings(BaseModel):
    """``conf/*/mlflow.yml``.

    Attributes
    ----------
    enabled
        Whether runs are tracked at all.
    tracking_uri
        Where to; null for a SQLite database under the data root. ``MLFLOW_TRACKING_URI`` goes before both.
    experiment
        Name of the experiment; made when absent.
    """

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    tracking_uri: str | None = None
    experiment: str = "anmi"


def read_settings(context: KedroContext) -> TrackingSettings:
    """Return the settings of the environment; what is not there keeps its default."""
    from kedro.config import MissingConfigException

    try:
        return TrackingSettings.model_validate(context.config_loader["mlflow"])
    except MissingConfigException:
        return TrackingSettings()
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(TrackingSettings.model_fields)
        raise AnmiError(f"mlflow.yml: {'.'.join(map(str, first['loc']))}: {first['msg']} (it takes {known})") from error


def tracking_uri(settings: TrackingSettings, root: str) -> str:
    """Return where runs are tracked: the environment variable, the setting, or a database under the data root."""
    asked = os.environ.get("MLFLOW_TRACKING_URI") or settings.tracking_uri
    if asked:
        return asked
    if "://" in root:
        raise AnmiError(f"the data root {root} is remote: name a tracking server in MLFLOW_TRACKING_URI")
    return f"sqlite:///{root}/tracking/mlflow.db"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep MLflow's accounts of its start and of database migrations out of the console."""
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    names = ("alembic", "mlflow", "mlflow.store.db.utils")
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.WARNING)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
