"""The page: a frame with its style and scripts, and sections of sentences, a table and figures inside it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from anmi.report.figures import Figure


class Toned(str):
    """A cell whose last line has a colour: that of a gain, ``good``, or of a loss, ``bad``, where either is certain."""

    tone = ""


class Section(NamedTuple):
    """A part of a page: sentences, a table (what follows the first line of a cell is set small), figures, a note."""

    title: str
    sentences: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Figure | None] = ()
    note: str = ""


def page(**values: Any) -> str:
    """Return the report as one self-contained HTML document, texts escaped.

    It is UTF-8 text with plotly.js inside, compressed (2 MB). Its content security policy forbids fetching anything.
    """
    return _template("page.html.jinja").render(values, plotly=_plotly()).lstrip()


def with_sections(report: str, sections: Sequence[Section]) -> str:
    """Return a page with these sections at its end, their texts escaped."""
    made = _template("sections.html.jinja").render(sections=sections)
    before, end, after = report.rpartition("</main>")
    return before + made + end + after


def _template(name: str) -> jinja2.Template:
    loader, strict = jinja2.FileSystemLoader(Path(__file__).parent), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=strict)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["embedded"] = embedded
    return environment.get_template(name)


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


def packed(text: str) -> str:
    """Return a text compressed and in base64, which no text can break out of; equal texts give equal results.

    The page's script has it back by ``unpacked``.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed("</script>"))).decode()
    '</script>'
    """
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


def embedded(figure: Figure) -> Markup:
    """Return the specification of a figure as JSON that cannot end the script element it stands in."""
    spec = json.dumps(figure.spec, allow_nan=False)
    for character in "<>&":
        spec = spec.replace(character, f"\\u{ord(character):04x}")
    return Markup(spec)
