"""What metadata say that a document is about asks for it, as a question."""

from __future__ import annotations

from typing import Final

from anmi import seeds
from anmi.adaptation.views import Document, Make, Material, View
from anmi.corpus.texts import values_of

# By type, and what it is also called; of a type that is not here no question is made.
TEMPLATES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("information", "definition", "overview", "description"): ("What is {}?", "What does {} mean?"),
    ("symptoms", "signs"): ("What are the symptoms of {}?", "How do I recognise {}?"),
    ("treatment", "treatments", "therapy"): ("How is {} treated?", "What are the treatments for {}?"),
    ("causes", "cause", "etiology"): ("What causes {}?", "Where does {} come from?"),
    ("prevention",): ("How can {} be prevented?", "What helps against getting {}?"),
    ("exams and tests", "diagnosis"): ("How is {} diagnosed?", "Which tests show {}?"),
    ("outlook", "prognosis"): ("What is the outlook for {}?", "How does {} develop?"),
    ("susceptibility", "risk factors", "risks"): ("Who is at risk of {}?", "What raises the risk of {}?"),
    ("frequency", "prevalence"): ("How common is {}?", "How many people have {}?"),
    ("inheritance",): ("Is {} inherited?", "Does {} run in families?"),
    ("genetic changes", "genetics"): ("Which genes are related to {}?", "What genetic changes come with {}?"),
    ("complications",): ("What are the complications of {}?", "What can follow from {}?"),
    ("stages",): ("What are the stages of {}?",),
    ("research",): ("What research is done on {}?",),
    ("usage", "use", "how to"): ("How do I use {}?", "What is {} used for?"),
    ("installation", "setup"): ("How do I install {}?", "How do I set up {}?"),
    ("side effects",): ("What are the side effects of {}?", "Is {} safe?"),
    ("dosage",): ("How much {} should be taken?", "What is the dose of {}?"),
}
_BY_TYPE: Final = {name: templates for names, templates in TEMPLATES.items() for name in names}


def question(material: Material) -> Make:
    """Return what asks a document by the English questions of its type.

    Where the metadata lack a focus or a type, or questions of the type are not known, there are none, and none in
    collections in other languages. Nothing is taken out of the document: its metadata are not part of its text.

    Parameters
    ----------
    material
        Its ``question`` says which entries of the metadata are read.

    Examples
    --------
    >>> document = Document("d", "", "It hurts.", "en", '{"focus": "Gout", "qtype": "stages"}')
    >>> question(Material([document], "en"))(document, 5, 1)
    [View(query='What are the stages of Gout?', positive='It hurts.')]
    """

    def make(document: Document, most: int, seed: int) -> list[View]:
        names = (material.question.focus, material.question.type)
        focus, about = (" ".join(values_of([document.metadata], name, "")[0].split()) for name in names)
        templates = _BY_TYPE.get(about.casefold(), ())
        if not focus or document.language != "en":
            return []
        order = seeds.permutation(seed, "adaptation/question", document.document_id, len(templates))[:most]
        text = f"{document.title} {document.text}".strip()
        return [View(templates[place].replace("{}", focus), text) for place in order.tolist()]

    return make
