"""The errors a user can do something about."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnmiError(Exception):
    """A one-sentence message that names what is wrong, where, and what to do.

    The command line prints it without a traceback; anything else that is raised is a defect of ours.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known name, for error messages.

    Examples
    --------
    >>> nearest("anmi_21", ["anmi_2_1", "random"])
    'did you mean "anmi_2_1"? Known: anmi_2_1, random'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return f"{hint}Known: {', '.join(names)}"
