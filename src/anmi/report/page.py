"""What all pages share: the frame with its style and scripts, and figures inside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from anmi.report.figures import Figure


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
        UTF-8 text with plotly.js inside (about 5 MB). Its content security policy forbids fetching anything.
    """
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A script of an installed package, not data.
    return environment.get_template(template).render(values, plotly=Markup(get_plotlyjs())).lstrip()


def embedded(figure: Figure | None) -> dict[str, Any] | None:
    """Return a figure with its specification as JSON that cannot end the script element it stands in."""
    if figure is None:
        return None
    spec = json.dumps(figure.spec, allow_nan=False)
    for character in "<>&":
        spec = spec.replace(character, f"\\u{ord(character):04x}")
    return {"name": figure.name, "title": figure.title, "note": figure.note, "spec": Markup(spec)}
