"""Secrets stay out of everything a run leaves behind: parameters with one are refused, log lines are masked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from anmi.errors import AnmiError, causes, holds_address_secret, masked, secrets_of_environment
from anmi.runs.record import flatten


def check_no_secrets(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters with a secret, since they are written to manifests, the tracking server and reports.

    Found are addresses with credentials, and values of environment variables whose names say that they hold a secret,
    such as ``${oc.env:OPENAI_API_KEY}`` resolves to. A secret that looks like any other text cannot be told.

    Parameters
    ----------
    parameters
        Nested, as read from the configuration.

    Raises
    ------
    AnmiError
        Naming the parameter, and never its value.

    Examples
    --------
    >>> check_no_secrets({"collection": "beir:data/scifact"})
    >>> try:
    ...     check_no_secrets({"pairs": {"place": ["s3://key:secret@bucket/x"]}})
    ... except AnmiError as error:
    ...     print(str(error).split(";")[0])
    parameter "pairs.place" holds an address with credentials
    """
    known = secrets_of_environment()
    for name, value in flatten(parameters).items():
        # The name as well: what is typed wrongly on the command line may end up in it.
        text = f"{name} {value}"
        if holds_address_secret(text):
            raise AnmiError(
                f'parameter "{name}" holds an address with credentials; parameters are recorded, so leave them out '
                "and give them by environment variables"
            )
        held = next((variable for variable, secret in known.items() if secret in text), None)
        if held is not None:
            raise AnmiError(
                f'parameter "{name}" holds the value of the environment variable {held}; parameters are recorded, so '
                "name the variable instead, as key_variable does"
            )


def mask_logs() -> None:
    """Mask the secrets of every line that is logged from now on, whichever logger and handler it goes through."""
    make = logging.getLogRecordFactory()
    if getattr(make, "masks", False):
        return

    def make_masked(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # A wrong format is the handler's to complain of.
            return record
        without = masked(text)
        if without != text:
            record.msg, record.args = without, ()
        return record

    make_masked.masks = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_masked)


def mask_error(error: BaseException) -> None:
    """Mask the secrets in the messages of an error and its causes, so that a traceback may be shown."""
    for found in causes(error):
        found.args = tuple(masked(part) if isinstance(part, str) else part for part in found.args)
        if isinstance(found, OSError) and isinstance(found.strerror, str):
            # These are shown by their own fields.
            found.strerror = masked(found.strerror)
