"""What all pages share: the frame with its style and scripts, and figures inside it."""

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


class Section(NamedTuple):
    """A part of a page: sentences, and perhaps a table."""

    title: str
    sentences: Sequence[str]
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def with_sections(report: str, sections: Sequence[Section]) -> str:
    """Return a page with these sections at its end, their texts escaped."""
    made = _environment().get_template("sections.html.jinja").render(sections=sections)
    before, end, after = report.rpartition("</main>")
    return before + made + end + after


def page(template: str, **values: Any) -> str:
    """Return a template of this folder as one self-contained HTML document.

    Parameters
    ----------
    template
        Name of a file that extends ``page.html.jinja``.
    values
        Whatever the template names; texts are escaped.

    Returns
    -------
    str
        UTF-8 text with plotly.js inside, compressed (2 MB). Its content security policy forbids fetching anything.
    """
    return _environment().get_template(template).render(values, plotly=_plotly()).lstrip()


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


def packed(text: str) -> str:
    """Return a text compressed and in base64, which no text can break out of; equal texts give equal results.

    The page's script has it back by ``unpacked``. Scripts and tables are a third to a fifth as long.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed("</script>"))).decode()
    '</script>'
    """
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")


def embedded(figure: Figure | None) -> dict[str, Any] | None:
    """Return a figure with its specification as JSON that cannot end the script element it stands in."""
    if figure is None:
        return None
    spec = json.dumps(figure.spec, allow_nan=False)
    for character in "<>&":
        spec = spec.replace(character, f"\\u{ord(character):04x}")
    return {"name": figure.name, "title": figure.title, "note": figure.note, "spec": Markup(spec)}
