"""The module reads a BEIR folder with a knowledge graph beside it, and the facts that its documents state."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from anmi.corpus.beir import read_beir
from anmi.corpus.knowledge import Triple, stated_facts, triples_of
from anmi.corpus.language import detect_language
from anmi.corpus.places import inside
from anmi.corpus.rows import read_lines, read_objects
from anmi.corpus.texts import clean, joined_texts, to_json
from anmi.corpus.types import ENTITY_COLUMNS, Options, RawCollection, check_share, table_of
from anmi.errors import AnmiError, installed

_TABLES: Final = ("entities.jsonl", "triples.tsv")
_RDF: Final = (("graph.ttl",), ("graph.nt",))
_HEADER: Final = ["head", "relation", "tail"]
# Without a base, relative names in RDF would begin with the folder of the file, and differ between machines.
_BASE: Final = "http://no-base.invalid/"
# After rdfs:comment, the first of these that an entity has.
_DESCRIPTIONS: Final = (
    "http://dbpedia.org/ontology/abstract", "http://schema.org/description", "https://schema.org/description",
)  # fmt: skip
_MALFORMED: Final = "metadata.triples is no list of [head, relation, tail]; what is none was left out"


class Graph(NamedTuple):
    """A graph as it was read.

    Attributes
    ----------
    entities
        ``uri, label, types, description``, types as a JSON list of different names; URIs are unique.
    triples
        ``head, relation, tail``, each once; every head is an entity.
    set_aside
        ``kind, id, file, line, reason``: lines that are no triple of an entity.
    size
        How many lines or triples were read.
    notes
        Counts of what was left out.
    """

    entities: pd.DataFrame
    triples: pd.DataFrame
    set_aside: pd.DataFrame
    size: int
    notes: dict[str, Any]


def read_kg(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout with its graph.

    The graph is ``entities.jsonl`` with ``triples.tsv``, or else ``graph.ttl`` or ``graph.nt``, in the folder or in the
    one above. A document's facts are its ``metadata.triples``, names written short or as
    URIs, and the triples whose head is its id.

    Parameters
    ----------
    location
        The folder.
    options
        Of interest are ``language`` (of labels) and ``max_quarantine`` (of damaged triples, too).

    Raises
    ------
    AnmiError
        If a file is missing, not in its form, or too much of the graph is damaged.
    """
    raw, files = read_beir(location, options), graph_files(Path(location).expanduser())
    if len(files) > 1:
        graph = read_tables(*files)
    else:
        graph = read_rdf(files[0], options.language or detect_language(joined_texts(raw.documents)))
    check_share(graph.set_aside, "triples", graph.size, options.max_quarantine)
    bad = raw.documents[[not triples_of(text)[1] for text in raw.documents["metadata"]]]
    malformed = table_of(("fact", *row, _MALFORMED) for row in bad[["document_id", "file", "line"]].to_numpy().tolist())
    check_share(malformed, "documents", len(raw.documents), options.max_quarantine)

    entities, counts = with_ranges(graph.entities, graph.triples)
    known = set(zip(*(graph.triples[name] for name in _HEADER), strict=True))
    # Relations are seldom URIs; those that are none have a name and no short one.
    relations = (name for name in graph.triples["relation"].unique() if "://" in name)
    facts = stated_facts(raw.documents, graph.triples, resolver(entities["uri"], relations, known))
    counts["stated triples that the graph lacks"] = sum(
        fact not in known for fact in zip(*(facts[name] for name in _HEADER), strict=True)
    )
    notes = {"graph": [str(path) for path in files], **graph.notes, **{name: n for name, n in counts.items() if n}}
    return replace(
        raw, graph=graph.triples, notes=notes, entities=entities, facts=facts,
        set_aside=pd.concat([graph.set_aside, malformed], ignore_index=True),
    )  # fmt: skip


def graph_files(folder: Path) -> list[Path]:
    """Return the files of the graph of a folder: ``entities.jsonl`` and ``triples.tsv``, or one file of RDF."""
    places = (folder, folder.absolute().parent)
    for names, place in product((_TABLES, *_RDF), places):
        if all((place / name).is_file() for name in names):
            return [inside(place / name, place) for name in names]
    lacking = [name for name in _TABLES if not any((place / name).is_file() for place in places)] or _TABLES
    raise AnmiError(
        f"neither {folder} nor {places[1]} has {' and '.join(lacking)}; put {'it' if len(lacking) == 1 else 'them'} "
        "there, or the graph as graph.ttl or graph.nt"
    )


def read_tables(entities: Path, triples: Path) -> Graph:
    """Read a graph from two files.

    Parameters
    ----------
    entities
        Lines with ``uri`` and maybe ``label``, ``types`` (a list) and ``description``.
    triples
        ``head, relation, tail`` and maybe ``split``, separated by tabs, below a header. A tail in quotation marks, or
        one that is no entity, is a literal.

    Raises
    ------
    AnmiError
        If a file is missing or not in this form, or an entity occurs twice. A damaged triple is set aside.
    """
    known = read_entities(entities)
    lines = ((number, [clean(value).strip() for value in line.split("\t")]) for number, line in read_lines(triples))
    first, header = next(lines)
    if header not in (_HEADER, [*_HEADER, "split"]):
        raise AnmiError(
            f"{triples} line {first} is not the header; put head<TAB>relation<TAB>tail, and maybe <TAB>split, in the "
            "first line"
        )
    uris, found, bad, size = set(known["uri"]), dict[tuple[str, ...], None](), [], 0
    for number, fields in lines:
        size += 1
        reason = ""
        if len(fields) not in (3, 4):
            reason = f"{len(fields)} columns where head, relation, tail and maybe split were expected"
        elif not all(fields[:3]):
            reason = "the head, the relation or the tail is empty"
        elif fields[0] not in uris:
            reason = f"the head is {'a literal' if is_quoted(fields[0]) else 'no entity'}"
        if reason:
            bad.append(("triple", fields[0], str(triples), number, reason))
        else:
            found[tuple(fields[:3])] = None
    if not size:
        raise AnmiError(f"{triples} has a header and no rows; at least one triple was expected")
    return Graph(known, pd.DataFrame(list(found), columns=_HEADER, dtype="str"), table_of(bad), size, {})


def read_entities(path: Path) -> pd.DataFrame:
    """Read ``uri, label, types, description`` from a file of JSON lines, types as a JSON list.

    Raises
    ------
    AnmiError
        If a line has no ``uri`` or one that an earlier line has.
    """
    lines: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    for number, value in read_objects(path):
        uri, label, types, description = (value.get(key) for key in ENTITY_COLUMNS)
        if not isinstance(uri, str) or not uri.strip():
            raise AnmiError(f'{path} line {number} has no "uri" that is a text; every entity needs one')
        uri = clean(uri).strip()
        if uri in lines:
            raise AnmiError(
                f'{path} line {number} repeats the entity "{uri}" of line {lines[uri]}; keep one of these lines'
            )
        lines[uri] = number
        # One type is often written without its brackets.
        listed = types if isinstance(types, list) else [types]
        names = dict.fromkeys(clean(name).strip() for name in listed if isinstance(name, str) and name.strip())
        label = clean(label).strip() if isinstance(label, str) else ""
        described = clean(description) if isinstance(description, str) else ""
        rows.append((uri, label or last_segment(uri), to_json(list(names)), described))
    return pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")


def last_segment(uri: str) -> str:
    """Return what a URI ends in, with blanks for underscores: its label where it has none of its own.

    Examples
    --------
    >>> last_segment("http://dbpedia.org/resource/Aarhus_Airport"), last_segment("http://example.org/city#Aarhus")
    ('Aarhus Airport', 'Aarhus')
    """
    kept = uri.rstrip("/#")
    return kept[max(kept.rfind("/"), kept.rfind("#")) + 1 :].replace("_", " ").strip() or uri


def is_quoted(text: str) -> bool:
    """Return whether a text stands in quotation marks, as a literal does."""
    return len(text) > 1 and text[0] == text[-1] == '"'


def with_ranges(entities: pd.DataFrame, graph: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Give entities without a type the ranges of the relations that they are the tail of.

    Parameters
    ----------
    entities
        ``uri, label, types, description``, types as a JSON list.
    graph
        ``head, relation, tail``.

    Returns
    -------
    pandas.DataFrame
        The entities.
    dict
        How many had no type, and how many have none even so.

    Examples
    --------
    >>> entities = pd.DataFrame({"uri": ["u:a", "u:b", "u:c"], "types": ['["city"]', "[]", "[]"]})
    >>> graph = pd.DataFrame({"head": ["u:a"], "relation": ["country"], "tail": ["u:b"]})
    >>> found, counts = with_ranges(entities, graph)
    >>> found.types.tolist(), counts
    (['["city"]', '["range:country"]', '[]'], {'entities without a type': 2, 'entities without a type or a range': 1})
    """
    bare = entities["types"] == "[]"
    tails = graph[graph["tail"].isin(entities.loc[bare, "uri"])].drop_duplicates(["relation", "tail"])
    ranges = ("range:" + tails["relation"]).groupby(tails["tail"], sort=False).agg(lambda names: to_json(list(names)))
    types = entities["types"].mask(bare, entities["uri"].map(ranges).fillna("[]")).astype("str")
    without = int((types == "[]").sum())
    counts = {"entities without a type": int(bare.sum()), "entities without a type or a range": without}
    return entities.assign(types=types), counts


def by_name(uris: Iterable[str]) -> dict[str, list[str]]:
    """Return which URIs a name may stand for, the shortest first: a URI, or all of one after one of its slashes.

    Examples
    --------
    >>> known = by_name(["http://x.org/HIV/AIDS", "http://y.org/AIDS"])
    >>> known["AIDS"], known["HIV/AIDS"]
    (['http://y.org/AIDS', 'http://x.org/HIV/AIDS'], ['http://x.org/HIV/AIDS'])
    """
    found: dict[str, list[str]] = {}
    every = sorted(set(uris), key=lambda uri: (len(uri), uri))
    for uri in every:
        start = uri.find("://") + 3 if "://" in uri else 0
        for name in {uri[place + 1 :] for place in range(start, len(uri) - 1) if uri[place] in "/#"}:
            found.setdefault(name, []).append(uri)
    return found | {uri: [uri] for uri in every}


def meant(name: str, known: Mapping[str, Sequence[str]]) -> str:
    """Return the URI that a name stands for, and the name as it is where none or no single one does.

    Of ``http://x.org/AIDS`` and ``http://x.org/HIV/AIDS`` the first is meant: the second has a longer name there.
    ``Paris`` of two unrelated places stays ``Paris``.
    """
    found = known.get(name, [name])
    place = found[0].removesuffix(name)
    return found[0] if all(other.startswith(place) for other in found) else name


def resolver(
    entities: Iterable[str], relations: Iterable[str], known: Collection[Triple]
) -> Callable[[Triple], Triple]:
    """Return what writes a document's triple as the graph writes it.

    Where the graph has no such triple, names become URIs if these are clear. A tail in quotation marks is a literal,
    and never an entity of that name.

    Parameters
    ----------
    entities, relations
        URIs.
    known
        The triples of the graph, which decide what an ambiguous name means.

    Examples
    --------
    >>> known = {("http://x.org/Aarhus", "country", "http://x.org/Denmark"), ("http://x.org/Aarhus", "size", '"91"')}
    >>> resolve = resolver(["http://x.org/Aarhus", "http://x.org/Denmark"], [], known)
    >>> resolve(("Aarhus", "country", "Denmark"))
    ('http://x.org/Aarhus', 'country', 'http://x.org/Denmark')
    >>> resolve(("Aarhus", "size", "91")), resolve(("Aarhus", "country", '"Denmark"'))
    (('http://x.org/Aarhus', 'size', '"91"'), ('http://x.org/Aarhus', 'country', '"Denmark"'))
    """
    named, related = by_name(entities), by_name(relations)

    @cache  # The same triple stands in many documents.
    def resolve(triple: Triple) -> Triple:
        head, relation, tail = triple
        literal = is_quoted(tail)
        tails = (tail, tail[1:-1]) if literal else (tail, *named.get(tail, ()), f'"{tail}"')
        for found in product(named.get(head, [head]), (relation, *related.get(relation, ())), tails):
            if found in known:
                return found
        return meant(head, named), meant(relation, related), tail if literal else meant(tail, named)

    return resolve


def read_rdf(path: Path, language: str) -> Graph:
    """Read a graph in Turtle (``*.ttl``) or N-Triples (``*.nt``).

    ``rdfs:label``, ``rdf:type`` and a description (``rdfs:comment``, else ``dbo:abstract``, else
    ``schema:description``) belong to the entity, every other triple to the graph, but for those in the terms of RDF,
    RDFS and OWL. An entity of a class is one of the classes above it, too. A text becomes a tail in quotation marks;
    numbers, dates and the like go without, as they are written.

    Parameters
    ----------
    path
        The file.
    language
        ISO 639-1 code of the labels that are preferred; then come English ones, those of no language, and the rest.

    Returns
    -------
    Graph
        Entities are all heads and tails of the graph, and what else has a label, type or description and is no class;
        in the order of the file.

    Raises
    ------
    AnmiError
        If rdflib is not installed or the file is not Turtle.
    """
    installed("rdflib", str(path), "rdf")
    from rdflib import OWL, RDF, RDFS, XSD, BNode, Literal, URIRef

    graph = _parsed(path)
    described_by = [RDFS.comment, *map(URIRef, _DESCRIPTIONS)]
    order, texts, above = (language, "en", ""), (None, XSD.string, RDF.langString), RDFS.subClassOf

    def of_schema(node: Any) -> bool:
        return str(node).startswith((str(RDF), str(RDFS), str(OWL)))

    def said(node: Any, *relations: Any) -> str:
        """Return the text that is preferred: by language, then by relation."""
        found = []
        for number, relation in enumerate(relations):
            for text in (text for text in graph.objects(node, relation) if isinstance(text, Literal)):
                tag = (text.language or "").lower().partition("-")[0]
                found.append((order.index(tag) if tag in order else 3, number, text.language or "", str(text)))
        return clean(min(found)[-1]) if found else ""

    classes = {*graph.subjects(above), *graph.objects(None, above), *graph.objects(None, RDF.type)}
    # Everything is one of these, so they make no class; the other kinds of OWL are those of classes.
    instances = (OWL.Thing, OWL.NamedIndividual, RDFS.Resource)
    classes |= {node for node, kind in graph.subject_objects(RDF.type) if of_schema(kind) and kind not in instances}
    nodes: dict[Any, bool] = {}
    facts, counts = dict[Triple, None](), Counter[str]()
    for triple in graph:
        head, relation, tail = triple
        text = isinstance(tail, Literal)
        if any(isinstance(node, BNode) for node in triple):
            counts["triples with a blank node"] += 1
        elif relation in ([RDFS.label, *described_by] if text else [RDF.type, above]):
            nodes.setdefault(head, head not in classes)
        elif of_schema(relation):
            counts["triples about names and classes"] += 1
        else:
            nodes |= {head: True} if text else {head: True, tail: True}
            written = f'"{tail}"' if text and tail.datatype in texts else str(tail)
            facts[clean(str(head)), clean(str(relation)), clean(written)] = None
    if counts["triples with a blank node"] == len(graph):
        raise AnmiError(f"{path} holds no triple that names its head and its tail; at least one was expected")
    rows = []
    for node in (node for node, kept in nodes.items() if kept):
        kinds = (kind for own in graph.objects(node, RDF.type) for kind in graph.transitive_objects(own, above))
        types = dict.fromkeys(clean(str(kind)) for kind in kinds if not of_schema(kind))
        label = said(node, RDFS.label).strip() or last_segment(clean(str(node)))
        rows.append((clean(str(node)), label, to_json(list(types)), said(node, *described_by)))
    entities = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    triples = pd.DataFrame(list(facts), columns=_HEADER, dtype="str")
    return Graph(entities, triples, table_of(), len(graph), {name: n for name, n in counts.items() if n})


def _parsed(path: Path) -> Any:
    import rdflib

    text = "".join(f"{line}\n" for _, line in read_lines(path, blank=True))
    graph = rdflib.Graph("SimpleMemory")  # Which keeps the order.
    # It would rewrite 01.50 to 1.5, and warn of every URI and date that is not in order.
    before, rdflib.NORMALIZE_LITERALS = rdflib.NORMALIZE_LITERALS, False
    logging.getLogger("rdflib").setLevel(logging.ERROR)
    try:
        return graph.parse(data=text, format="turtle", publicID=_BASE)
    except (SyntaxError, ValueError, RecursionError) as error:
        # rdflib counts some lines twice, but knows at which character it stopped.
        stopped: int | None = getattr(error, "_i", None)
        line = "" if stopped is None else f" line {text.count(chr(10), 0, stopped) + 1}"
        reason = " ".join(str(getattr(error, "_why", error)).split())[:200]
        raise AnmiError(
            f"{path}{line} is not valid Turtle ({reason}); correct the statement that ends or begins there"
        ) from None
    finally:
        rdflib.NORMALIZE_LITERALS = before
