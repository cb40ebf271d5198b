"""A heading asks for the section under it."""

from __future__ import annotations

import re
from typing import Final

from anmi import seeds
from anmi.adaptation.views import Document, View

# Markdown's headings, and those that a line of = or - underlines.
_HEADING: Final = re.compile(r"^(?:#{1,6}[ \t]+(\S.*?)[ \t]*#*|(\S.*?)[ \t]*\n[=-]{3,})[ \t]*$", re.MULTILINE)


def heading(document: Document, most: int, seed: int) -> list[View]:
    r"""Return headings, drawn without replacement, each with the text up to the next one.

    Examples
    --------
    >>> heading(Document("d", "Guide", "# Setup\nRun make.\n# Use\nType run.", "en"), 1, seed=3)[0].positive
    'Guide Type run.'
    """
    found = list(_HEADING.finditer(document.text))
    ends = [*(match.start() for match in found), len(document.text)][1:]
    views = []
    for match, end in zip(found, ends, strict=True):
        section = document.text[match.end() : end].strip()
        if section:
            views.append(View((match[1] or match[2]).strip(), f"{document.title} {section}".strip()))
    views = list(dict.fromkeys(views))
    order = seeds.permutation(seed, "adaptation/heading", document.document_id, len(views))[:most]
    return [views[place] for place in order.tolist()]
