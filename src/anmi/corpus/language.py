"""The module knows the language of a collection: its code, as given or recognised offline from a sample."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from anmi.corpus.texts import Texts, taken
from anmi.errors import AnmiError

# The codes of ISO 639-1.
_CODES: Final = """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja
    jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb
    nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq
    sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
LANGUAGES: Final = frozenset(_CODES.split())
# Documents that are looked at, and how many characters of each: a recogniser needs a paragraph, not a page.
_SAMPLE: Final = 200
_PARAGRAPH: Final = 400
# Stems and stop words called Norwegian are of the standard that most write.
_SAME: Final = {"nb": "no"}


def language_code(given: str) -> str:
    """Return the code of a language by which tokens are chosen.

    Parameters
    ----------
    given
        ISO 639-1 code in any case, with or without script and region, or another code that
        :func:`detect_language` may return.

    Raises
    ------
    AnmiError
        There is no such language.

    Examples
    --------
    >>> language_code("hi"), language_code("pt_BR"), language_code("ZH-Hant-TW")
    ('hi', 'pt', 'zh')
    """
    code = given.strip().replace("_", "-").split("-")[0].lower()
    if code in LANGUAGES:
        return _SAME.get(code, code)
    import py3langid

    if code in {known for known, _ in py3langid.rank("")}:
        return code
    hint = f'did you mean "{code[:2]}"? Expected' if code[:2] in LANGUAGES else "expected"
    raise AnmiError(f'there is no language "{given}"; {hint}: an ISO 639-1 code such as en, de or ko')


def detect_language(texts: Texts) -> str:
    """Return the code of the language most documents of an evenly spaced sample are recognised as.

    It is that of ISO 639-1, or of 639-3 for a language that has no other; ``en`` for no documents at all.
    """
    import py3langid

    spaced = np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts)))
    found = taken(texts, np.unique(spaced.astype(int)))
    # Single short utterances are often misread; a handful read together seldom is.
    parts = [part for part in np.array_split(np.arange(len(found)), 20) if len(part)]
    chunks = ["\n".join(found[row][:_PARAGRAPH] for row in part.tolist()) for part in parts]
    votes = Counter(py3langid.classify(chunk)[0] for chunk in chunks)
    # Ties go to the first code in the alphabet, so that the answer does not depend on the order of documents.
    return min(votes, key=lambda code: (-votes[code], code), default="en")
