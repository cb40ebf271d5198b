"""Putting a negation in or taking it out, beside the verbs that take one without a change of form."""

from __future__ import annotations

import re
from typing import Final

from anmi.retrieval.variants.mentions import Span

# In lower case only: "May" and "Will" are names as well, and a question begins with its verb.
_BE: Final = "is|are|was|were"
_MODAL: Final = "could|will|would|should|must|shall"
_HAVE: Final = {"has": "does", "have": "do", "had": "did"}
_START: Final = r"(?<![\w.`'’/(\[\-])"
# Nor a word that denies already, nor one that a negation would join to something else.
_FREE: Final = r"(?=\s+(?!not\b|never\b|no\b|none\b|nothing\b|nor\b|only\b|hardly\b|rarely\b|been\s+not\b)\w)"
_INSERT: Final = re.compile(rf"{_START}(?P<verb>{_BE}|{_MODAL}|can|has|have|had)\b(?![-'’.]){_FREE}")
_REMOVE: Final = re.compile(
    rf"{_START}(?:(?P<verb>{_BE}|{_MODAL}|can|has|have|had|do|does|did)(?P<not>\s+not)\b"
    r"(?!\s+(?:only|just|merely|necessarily|yet)\b)|(?P<joined>cannot)\b"
    r"|(?P<stem>is|are|was|were|do|does|did|has|have|had|could|would|should|must|ca|wo)(?P<short>n['’]t)\b)"
)
_STEMS: Final = {"ca": "can", "wo": "will"}
# "has" helps another verb before a participle; before all else it is the verb itself.
_PARTICIPLE: Final = re.compile(
    r"\s+(?:\w+ly\s+|also\s+|already\s+|recently\s+)?(?:\w{2,}ed|been|become|begun|come|done|found|given|gone|grown|had|"
    r"held|kept|led|left|lost|made|met|put|run|seen|sent|set|shown|taken|told|won|\w+(?:ought|aught|itten|osen|oken))\b"
)
_HELPED: Final = re.compile(r"\b(?:to|not|n['’]t|could|will|would|should|must|might|may|shall|can)\s+\Z")

Change = tuple[Span, str]


def negations(text: str) -> list[Change]:
    """Return every way to put a negation into a text or to take one out, in the order of the text.

    Examples
    --------
    >>> for (start, end), new in negations("It is red, has a top, has been hot, and cannot fly."):
    ...     print(text_after := f"{start}-{end}: {new}")
    3-5: is not
    11-14: does not have
    22-25: has not
    40-46: can
    """
    found: list[Change] = []
    for match in _INSERT.finditer(text):
        verb, end = match["verb"], match.end()
        if verb in _HAVE:
            if _HELPED.search(text[max(match.start() - 10, 0) : match.start()]):
                continue
            new = f"{verb} not" if _PARTICIPLE.match(text, end) else f"{_HAVE[verb]} not have"
        else:
            new = "cannot" if verb == "can" else f"{verb} not"
        found.append((match.span(), new))
    for match in _REMOVE.finditer(text):
        stem = match["verb"] or match["stem"] or "can"
        found.append((match.span(), _STEMS.get(stem, stem)))
    return sorted(found)
