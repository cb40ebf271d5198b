"""Names of parameters that have changed: for one version the old ones work, with a warning that names the new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

log = logging.getLogger(__name__)


def with_new_names(given: Any, names: Mapping[str, str], place: str) -> Any:
    """Return parameters under their new names, for a ``model_validator(mode="before")``.

    Where both names are given the value under the old one counts, setting by setting: it is what the user wrote, and
    the new one may be of the project's own configuration.

    Parameters
    ----------
    given
        What a model is to be made of; anything but a mapping is returned as it is.
    names
        New names by old ones.
    place
        Where the parameters stand, for the warning.

    Examples
    --------
    >>> with_new_names({"new": 0.1}, {"old": "new"}, "audit")
    {'new': 0.1}
    """
    if not isinstance(given, Mapping) or not names.keys() & given.keys():
        return given
    result = {name: value for name, value in given.items() if name not in names}
    for old, new in names.items():
        if old in given:
            _warn(f"{place}.{old}", f"{place}.{new}")
            both = isinstance(result.get(new), Mapping) and isinstance(given[old], Mapping)
            result[new] = {**result[new], **given[old]} if both else given[old]
    return result


@cache
def _warn(old: str, new: str) -> None:
    log.warning("%s is now called %s; the old name works for one more version", old, new)
