"""The module reads a BEIR folder with a knowledge graph beside it, and the facts that its documents state."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.beir import read_beir
from anmi.corpus.knowledge import Triple, stated_facts, triples_of
from anmi.corpus.places import inside
from anmi.corpus.rows import read_lines, read_objects
from anmi.corpus.sentences import detect_language
from anmi.corpus.texts import clean, joined_texts, to_json
from anmi.corpus.types import ENTITY_COLUMNS, Options, RawCollection, check_share, table_of
from anmi.errors import AnmiError, installed

_TABLES: Final = ("entities.jsonl", "triples.tsv")
_RDF: Final = (("graph.ttl",), ("graph.nt",))
_HEADER: Final = ["head", "relation", "tail"]
# Without a base, relative names in RDF would begin with the folder of the file, and differ between machines.
_BASE: Final = "http://no-base.invalid/"
# Texts about an entity that are no facts.
_ABSTRACT: Final = re.compile(r"http://dbpedia\.org/ontology/abstract|https?://schema\.org/description")
_MALFORMED: Final = "metadata.triples is no list of [head, relation, tail]; what is none was left out"


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
    set_aside = table_of()
    if len(files) > 1:
        entities, graph, set_aside = read_tables(files[0], files[1], options.max_quarantine)
    else:
        entities, graph = read_rdf(files[0], options.language or detect_language(joined_texts(raw.documents)))
    bad = raw.documents[[not triples_of(text)[1] for text in raw.documents["metadata"]]]
    malformed = table_of(("fact", *row, _MALFORMED) for row in bad[["document_id", "file", "line"]].to_numpy().tolist())
    check_share(malformed, "documents", len(raw.documents), options.max_quarantine)

    entities = with_ranges(entities, graph)
    known = set(zip(*(graph[name] for name in _HEADER), strict=True))
    # Relations are seldom URIs; those that are none have a name and no short one.
    relations = (name for name in graph["relation"].unique() if "://" in name)
    facts = stated_facts(raw.documents, graph, resolver(entities["uri"], relations, known))
    notes: dict[str, Any] = {"graph": [str(path) for path in files]}
    if foreign := sum(fact not in known for fact in zip(*(facts[name] for name in _HEADER), strict=True)):
        notes["stated triples that the graph lacks"] = foreign
    return replace(
        raw, graph=graph, notes=notes, entities=entities, facts=facts,
        set_aside=pd.concat([set_aside, malformed], ignore_index=True),
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


def read_tables(
    entities: Path, triples: Path, max_quarantine: float
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read a graph from two files.

    Parameters
    ----------
    entities
        Lines with ``uri`` and maybe ``label`` and ``types`` (a list); other keys are ignored.
    triples
        ``head, relation, tail`` and maybe ``split``, separated by tabs, below a header. A tail in quotation marks, or
        one that is no entity, is a literal.
    max_quarantine
        The share of damaged triples that is allowed.

    Returns
    -------
    entities, triples, set_aside
        ``uri, label, types``, types as a JSON list of different names; ``head, relation, tail``, each once, every head
        an entity; and ``kind, id, file, line, reason`` of the lines that are no such triple.

    Raises
    ------
    AnmiError
        If a file is missing or not in this form, an entity occurs twice, or too many triples are damaged.
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
    check_share(table_of(bad), "triples", size, max_quarantine)
    return known, pd.DataFrame(list(found), columns=_HEADER, dtype="str"), table_of(bad)


def read_entities(path: Path) -> pd.DataFrame:
    """Read ``uri, label, types`` from a file of JSON lines, types as a JSON list.

    Raises
    ------
    AnmiError
        If a line has no ``uri`` or one that an earlier line has.
    """
    lines: dict[str, int] = {}
    rows: list[tuple[str, str, str]] = []
    for number, value in read_objects(path):
        uri, label, types = (value.get(key) for key in ENTITY_COLUMNS)
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
        rows.append((uri, label or last_segment(uri), to_json(list(names))))
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


def with_ranges(entities: pd.DataFrame, graph: pd.DataFrame) -> pd.DataFrame:
    """Give entities without a type the ranges of the relations that they are the tail of.

    Examples
    --------
    >>> entities = pd.DataFrame({"uri": ["u:a", "u:b", "u:c"], "types": ['["city"]', "[]", "[]"]})
    >>> graph = pd.DataFrame({"head": ["u:a"], "relation": ["country"], "tail": ["u:b"]})
    >>> with_ranges(entities, graph).types.tolist()
    ['["city"]', '["range:country"]', '[]']
    """
    bare = entities["types"] == "[]"
    tails = graph[graph["tail"].isin(entities.loc[bare, "uri"])].drop_duplicates(["relation", "tail"])
    ranges = ("range:" + tails["relation"]).groupby(tails["tail"], sort=False).agg(lambda names: to_json(list(names)))
    types = entities["types"].mask(bare, entities["uri"].map(ranges).fillna("[]"))
    return entities.assign(types=types.astype("str"))


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


def read_rdf(path: Path, language: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read a graph in Turtle (``*.ttl``) or N-Triples (``*.nt``).

    ``rdfs:label`` and ``rdf:type`` belong to the entity, every other triple to the graph, but for abstracts and those
    in the terms of RDF, RDFS and OWL. An entity of a class is one of the classes above it, too. A text becomes a tail
    in quotation marks; numbers, dates and the like stay as they are written.

    Parameters
    ----------
    path
        The file.
    language
        ISO 639-1 code of the labels that are preferred; then come English ones, those of no language, and the rest.

    Returns
    -------
    entities, triples
        See :func:`read_tables`. Entities are all heads and tails of the graph, and what else has a label or type and
        is no class; in the order of the file.

    Raises
    ------
    AnmiError
        If rdflib is not installed or the file is not Turtle.
    """
    installed("rdflib", str(path), "rdf")
    from rdflib import OWL, RDF, RDFS, XSD, BNode, Literal

    graph = _parsed(path)
    order, texts, above = (language, "en", ""), (None, XSD.string, RDF.langString), RDFS.subClassOf

    def of_schema(node: Any) -> bool:
        return str(node).startswith((str(RDF), str(RDFS), str(OWL)))

    def label_of(node: Any) -> str:
        ranked = []
        for text in (each for each in graph.objects(node, RDFS.label) if isinstance(each, Literal)):
            tag = (text.language or "").lower().partition("-")[0]
            ranked.append((order.index(tag) if tag in order else len(order), tag, str(text)))
        return (clean(min(ranked)[2]).strip() if ranked else "") or last_segment(clean(str(node)))

    classes = {*graph.subjects(above), *graph.objects(None, above), *graph.objects(None, RDF.type)}
    # Everything is one of these, so they make no class; the other kinds of OWL are those of classes.
    instances = (OWL.Thing, OWL.NamedIndividual, RDFS.Resource)
    classes |= {node for node, kind in graph.subject_objects(RDF.type) if of_schema(kind) and kind not in instances}
    nodes: dict[Any, bool] = {}
    facts = dict[Triple, None]()
    for triple in graph:
        head, relation, tail = triple
        text = isinstance(tail, Literal)
        if any(isinstance(node, BNode) for node in triple):
            continue
        if relation in ([RDFS.label] if text else [RDF.type, above]):
            nodes.setdefault(head, head not in classes)
        elif not of_schema(relation) and not _ABSTRACT.fullmatch(str(relation)):
            nodes |= {head: True} if text else {head: True, tail: True}
            written = f'"{tail}"' if text and tail.datatype in texts else str(tail)
            facts[clean(str(head)), clean(str(relation)), clean(written)] = None
    if not nodes:
        raise AnmiError(f"{path} holds no triple that names its head and its tail; at least one was expected")
    rows = []
    for node in (node for node, kept in nodes.items() if kept):
        kinds = (kind for own in graph.objects(node, RDF.type) for kind in graph.transitive_objects(own, above))
        types = dict.fromkeys(clean(str(kind)) for kind in kinds if not of_schema(kind))
        rows.append((clean(str(node)), label_of(node), to_json(list(types))))
    entities = pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str")
    return entities, pd.DataFrame(list(facts), columns=_HEADER, dtype="str")


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
