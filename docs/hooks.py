"""What MkDocs needs beyond its settings: links that leave the documentation, formulas, a search without a server."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.utils import get_relative_url

# The plugin `offline` takes this from a server; ours lies in the documentation.
_SHIM = "https://unpkg.com/iframe-worker/shim"
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!reference/)([^)]+)\)")
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to files of the repository, which a site has not, into their paths."""
    return _OUTSIDE.sub(lambda link: _place(link[1].strip("`"), link[2]), markdown)


def _place(name: str, path: str) -> str:
    return f"`{path}`" if name in path else f"{name} (`{path}`)"


def on_page_content(content: str, /, **_: Any) -> str:
    """Turn TeX into MathML, which browsers draw by themselves: nothing is fetched, and no script runs."""
    content = _BLOCK.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content)
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def on_post_page(output: str, /, page: Any, **_: Any) -> str:
    """Let the search of pages opened from a folder take its script from that folder."""
    return output.replace(_SHIM, get_relative_url("javascripts/iframe_worker.js", page.url))


def on_post_template(output: str, /, **_: Any) -> str:
    """Do the same for the page of a place that is not there."""
    return output.replace(_SHIM, "javascripts/iframe_worker.js")


def _mathml(formula: str, display: str) -> str:
    return convert(html.unescape(formula).strip(), display=display)
