"""The language of a collection: its code, as given or recognised offline from a sample."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from threading import Lock, Thread
from typing import Any, Final

import numpy as np

from anmi.corpus.texts import Texts, taken
from anmi.errors import AnmiError

# ISO 639-1: the code and the English name of every language that has one.
_TABLE: Final = (
    "aa Afar|ab Abkhazian|ae Avestan|af Afrikaans|ak Akan|am Amharic|an Aragonese|ar Arabic|as Assamese|"
    "av Avaric|ay Aymara|az Azerbaijani|ba Bashkir|be Belarusian|bg Bulgarian|bi Bislama|bm Bambara|bn Bengali|"
    "bo Tibetan|br Breton|bs Bosnian|ca Catalan|ce Chechen|ch Chamorro|co Corsican|cr Cree|cs Czech|"
    "cu Church Slavonic|cv Chuvash|cy Welsh|da Danish|de German|dv Dhivehi|dz Dzongkha|ee Ewe|el Greek|"
    "en English|eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|ff Fulah|fi Finnish|fj Fijian|"
    "fo Faroese|fr French|fy Western Frisian|ga Irish|gd Scottish Gaelic|gl Galician|gn Guarani|gu Gujarati|"
    "gv Manx|ha Hausa|he Hebrew|hi Hindi|ho Hiri Motu|hr Croatian|ht Haitian|hu Hungarian|hy Armenian|hz Herero|"
    "ia Interlingua|id Indonesian|ie Interlingue|ig Igbo|ii Sichuan Yi|ik Inupiaq|io Ido|is Icelandic|it Italian|"
    "iu Inuktitut|ja Japanese|jv Javanese|ka Georgian|kg Kongo|ki Kikuyu|kj Kuanyama|kk Kazakh|kl Kalaallisut|"
    "km Khmer|kn Kannada|ko Korean|kr Kanuri|ks Kashmiri|ku Kurdish|kv Komi|kw Cornish|ky Kirghiz|la Latin|"
    "lb Luxembourgish|lg Ganda|li Limburgan|ln Lingala|lo Lao|lt Lithuanian|lu Luba-Katanga|lv Latvian|"
    "mg Malagasy|mh Marshallese|mi Maori|mk Macedonian|ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|"
    "my Burmese|na Nauru|nb Norwegian Bokmål|nd North Ndebele|ne Nepali|ng Ndonga|nl Dutch|nn Norwegian Nynorsk|"
    "no Norwegian|nr South Ndebele|nv Navajo|ny Nyanja|oc Occitan|oj Ojibwa|om Oromo|or Oriya|os Ossetian|"
    "pa Panjabi|pi Pali|pl Polish|ps Pashto|pt Portuguese|qu Quechua|rm Romansh|rn Rundi|ro Romanian|ru Russian|"
    "rw Kinyarwanda|sa Sanskrit|sc Sardinian|sd Sindhi|se Northern Sami|sg Sango|si Sinhala|sk Slovak|"
    "sl Slovenian|sm Samoan|sn Shona|so Somali|sq Albanian|sr Serbian|ss Swati|st Southern Sotho|su Sundanese|"
    "sv Swedish|sw Swahili|ta Tamil|te Telugu|tg Tajik|th Thai|ti Tigrinya|tk Turkmen|tl Tagalog|tn Tswana|"
    "to Tonga|tr Turkish|ts Tsonga|tt Tatar|tw Twi|ty Tahitian|ug Uighur|uk Ukrainian|ur Urdu|uz Uzbek|ve Venda|"
    "vi Vietnamese|vo Volapük|wa Walloon|wo Wolof|xh Xhosa|yi Yiddish|yo Yoruba|za Zhuang|zh Chinese|zu Zulu"
)
LANGUAGES: Final = dict(entry.split(" ", 1) for entry in _TABLE.split("|"))
# Documents that are looked at, and how many characters of each: a recogniser needs a paragraph, not a page.
_SAMPLE: Final = 200
_PARAGRAPH: Final = 400
# The written standard that stems and stop words called Norwegian are of.
_SAME: Final = {"nb": "no"}
_LOADING: Final = Lock()


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
        There is no such language; the message names the nearest.

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
    named = {name.lower(): known for known, name in LANGUAGES.items()}
    close = [name for name in named if code and name.startswith(code)] or get_close_matches(
        code, named if len(code) > 3 else [*LANGUAGES, *named], n=1, cutoff=0.5
    )
    nearest = next((named.get(found, found) for found in close), "en")
    hint = f'did you mean "{nearest}" ({LANGUAGES[nearest]})? Expected' if close else "expected"
    raise AnmiError(f'there is no language "{given}"; {hint}: an ISO 639-1 code such as "{nearest}"')


def load_ahead() -> None:
    """Load the recogniser while something else goes on: it takes a second, most of it outside of Python's lock."""
    Thread(target=_recogniser, daemon=True).start()


def _recogniser() -> Any:
    """Return py3langid with its model loaded, which it does at the first text."""
    with _LOADING:
        import py3langid

        py3langid.classify("")
        return py3langid


def detect_language(texts: Texts) -> str:
    """Return the code of the language most documents of an evenly spaced sample are recognised as.

    It is that of ISO 639-1, or of 639-3 for a language that has no other; ``en`` for no documents at all.
    """
    spaced = np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts)))
    found = taken(texts, np.unique(spaced.astype(int)))
    # Single short utterances are often misread; a handful read together seldom is.
    parts = [part for part in np.array_split(np.arange(len(found)), 20) if len(part)]
    chunks = ["\n".join(found[row][:_PARAGRAPH] for row in part.tolist()) for part in parts]
    votes = Counter(_recogniser().classify(chunk)[0] for chunk in chunks)
    # Ties go to the first code in the alphabet, so that the answer does not depend on the order of documents.
    return min(votes, key=lambda code: (-votes[code], code), default="en")
