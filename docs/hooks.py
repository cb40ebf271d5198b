"""What MkDocs needs beyond its settings: links that leave the documentation name the file instead."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!reference/)([^)]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to files of the repository, which a site has not, into their paths."""
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
