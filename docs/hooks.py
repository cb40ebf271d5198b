"""What MkDocs needs beyond its settings: tables of options, links, formulas, a search without a server."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from anmi.selection.recipe import Recipe
from anmi.selection.steps import STEPS
from anmi.training.options import TrainingOptions

# The plugin `offline` takes this from a server; ours lies in the documentation.
_SHIM = "https://unpkg.com/iframe-worker/shim"
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!reference/)([^)]+)\)")
# The options of training that name a kind with parameters of its own.
_KINDS: Final = ("loss", "temperature", "sources", "draw", "curriculum", "hardness")
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in tables of options, and turn links to files of the repository, which a site has not, into their paths."""
    steps = ((name, step.apply.__doc__ or "", step.params) for name, step in STEPS.items())
    kinds = (
        (f"{option}: {kind.model_fields['kind'].default}", kind.__doc__ or "", kind)
        for option in _KINDS
        for kind in get_args(TrainingOptions.model_fields[option].annotation)
    )
    fields = [("recipe", Recipe.__doc__ or "", Recipe)]
    tables = {
        "<!-- fields -->": fields,
        "<!-- steps -->": steps,
        "<!-- kinds of training -->": kinds,
    }
    for mark, described in tables.items():
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(_table(described)))
    return _OUTSIDE.sub(lambda link: _place(link[1].strip("`"), link[2]), markdown)


def _table(described: Iterable[tuple[str, str, type[BaseModel]]]) -> Iterator[str]:
    """Yield the lines of a table: each name with its meaning, and below it its parameters."""
    yield from ("| name | parameter | default | meaning |", "|---|---|---|---|")
    for name, meaning, model in described:
        yield f"| **`{name}`** | | | {_cell(meaning)} |"
        for parameter, field in model.model_fields.items():
            if parameter == "kind":
                continue
            default = (
                ""
                if field.default is PydanticUndefined
                else f"`{json.dumps(field.default, default=str)}`"
            )
            yield f"| | `{parameter}` | {default} | {_cell(field.description or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).replace("|", r"\|")


def _place(name: str, path: str) -> str:
    return f"`{path}`" if name in path else f"{name} (`{path}`)"


def on_page_content(content: str, /, **_: Any) -> str:
    """Turn TeX into MathML, which browsers draw by themselves: nothing is fetched, and no script runs."""
    content = _BLOCK.sub(
        lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content
    )
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def on_env(env: Any, /, config: Any, files: Any) -> Any:
    """Add llms.txt, from which language models learn what each page is about (llmstxt.org)."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = None
    pages = (file.page for file in files.documentation_pages())
    page = next(page for page in pages if page.previous_page is None)
    while page is not None:
        if page.parent is not section:
            section = page.parent
            lines += ["", f"## {section.title}", ""]
        lines.append(f"- [{page.title}]({page.url}): {_first_sentence(page.markdown)}")
        page = page.next_page
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return env


def _first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's first paragraph, without links and emphasis."""
    blocks = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL).split("\n\n")
    paragraph = next(block for block in blocks if re.match(r"[\w`*\[]", block.strip()))
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split())).replace("*", "")
    return re.split(r"(?<=[.!?])\s", plain, maxsplit=1)[0]


def on_post_page(output: str, /, page: Any, **_: Any) -> str:
    """Let the search of pages opened from a folder take its script from that folder."""
    return output.replace(_SHIM, get_relative_url("javascripts/iframe_worker.js", page.url))


def on_post_template(output: str, /, **_: Any) -> str:
    """Do the same for the page of a place that is not there."""
    return output.replace(_SHIM, "javascripts/iframe_worker.js")


def _mathml(formula: str, display: str) -> str:
    return convert(html.unescape(formula).strip(), display=display)
