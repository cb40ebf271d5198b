"""An encoder may want a prompt before queries or documents; this module finds it.

An encoder that was trained with ``query: `` and ``passage: `` is another one without them. So prompts belong to the
model: they are settled once, when it is loaded, and whoever encodes, trains or saves takes them from it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.token_table import TokenTable

log = logging.getLogger(__name__)

# By what names a folder may call the prompt of each role, in the order in which sentence-transformers asks for them.
_QUERY: Final = "query"
_DOCUMENT: Final = ("document", "passage", "corpus")


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    # To YAML, as which Kedro reads the command line, a colon and a blank make a mapping.
    raise ValueError("a text was expected; on the command line put it in quotes, as in dense.prompt_query='query: '")


Prompt = Annotated[str | None, BeforeValidator(_text)]


class Prompts(NamedTuple):
    """What is put before queries and before documents; None means the model's own prompt, if any."""

    query: str | None = None
    document: str | None = None


OWN: Final = Prompts()


def prompts_of(model: SentenceTransformer | TokenTable) -> dict[str, str]:
    """Return what a model puts before texts of each role, ``query`` and ``document``; empty for nothing.

    They are the prompts that ``encode_query`` and ``encode_document`` of sentence-transformers use, except that an
    empty prompt ``document`` does not hide one called ``passage`` or ``corpus``: release 6 adds the empty one to every
    model that does not name it, and so would encode documents of a model trained with ``passage: `` without it. The
    default prompt, which those methods do not use, counts for neither role.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> prompts_of(SimpleNamespace(prompts={"query": "query: ", "document": "", "passage": "passage: "}))
    {'query': 'query: ', 'document': 'passage: '}
    """
    known = getattr(model, "prompts", None) or {}
    document = next((known[name] for name in _DOCUMENT if known.get(name)), "")
    return {"query": known.get(_QUERY) or "", "document": document}


def settle_prompts(model: SentenceTransformer | TokenTable, prompts: Prompts = OWN) -> None:
    """Write a model's prompts, or those that are given in their place, where sentence-transformers looks for them.

    Afterwards ``encode_query`` and ``encode_document`` use them, also those of the saved model.

    Parameters
    ----------
    model
        Its prompts ``query`` and ``document`` are set.
    prompts
        Those that are not None win over the model's own.
    """
    before, found = dict(model.prompts), prompts_of(model)
    default = before.get(model.default_prompt_name)
    if prompts.document is None and found["document"] != (before.get("document") or ""):
        _tell(
            f'documents get the prompt "{found["document"]}", which the model calls otherwise than "document", so that '
            "encode_document of sentence-transformers would leave it out; dense.prompt_document sets another, '' none"
        )
    if prompts == OWN and default and default not in found.values():
        _tell(
            f'the default prompt "{default}" of the model is not used, as encode_query and encode_document of '
            "sentence-transformers do not; dense.prompt_query and dense.prompt_document set it"
        )
    model.prompts = before | found
    if prompts.query is not None:
        model.prompts[_QUERY] = prompts.query
    if prompts.document is not None:
        # By all its names, or the old text would come back by one of them where the new one is empty.
        model.prompts |= {name: prompts.document for name in _DOCUMENT if name in model.prompts}


def in_words(prompts: Mapping[str, str]) -> str:
    """Write the prompts of :func:`prompts_of` for people.

    Examples
    --------
    >>> in_words({"query": "query: ", "document": ""})
    '"query: " before queries, none before documents'
    >>> in_words({"query": "", "document": ""})
    'none'
    """
    if not any(prompts.values()):
        return "none"
    quoted = {role: json.dumps(prompts[role], ensure_ascii=False) if prompts[role] else "none" for role in prompts}
    return f"{quoted['query']} before queries, {quoted['document']} before documents"


@cache
def _tell(text: str) -> None:
    """Warn once: an encoder is loaded several times in a run."""
    log.warning("%s", text)
