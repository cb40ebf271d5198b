"""Bad inputs and what is said of them, one row each."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

import yaml
from click.testing import CliRunner, Result
from tests.corpus.conftest import Folder

ROOT: Final = Path(__file__).parents[2]
HEADER: Final = "query-id\tcorpus-id\tscore"
CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
TRAIN, DEV, TEST = (f"qrels/{split}.tsv" for split in ("train", "dev", "test"))


class Collection:
    """A small BEIR folder of 40 documents and queries (20, 10 and 10 in the splits), to damage."""

    def __init__(self, path: Path, documents: int = 40) -> None:
        self.path = path
        Folder(path, documents, train=0.5, dev=0.25).write()

    def lines(self, name: str) -> list[str]:
        return (self.path / name).read_text(encoding="utf-8").splitlines()

    def write(self, name: str, lines: list[str]) -> None:
        (self.path / name).write_bytes("".join(line + "\n" for line in lines).encode())

    def change(self, name: str, number: int, line: str) -> None:
        lines = self.lines(name)
        lines[number - 1] = line
        self.write(name, lines)

    def add(self, name: str, *lines: str) -> None:
        self.write(name, [*self.lines(name), *lines])

    def remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink()

    def graph(self) -> Collection:
        self.write(
            "entities.jsonl", [json.dumps({"uri": f"u:{i}", "types": ["t"]}) for i in range(3)]
        )
        self.write("triples.tsv", ["head\trelation\ttail", "u:0\tr\tu:1", "u:1\tr\tu:2"])
        return self


Spoil = Callable[[Collection], object]


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes
    ----------
    name
        What is wrong.
    mentions
        What the sentence has to name: the key, file, line or id, and what to do; empty for an input
        that is fine.
    parameters
        For ``--params``; ``{place}`` is a folder of the case's own, with the collection in
        ``mine``.
    spoil
        What is done to the collection, or to the folder around it.
    by
        ``reader``: read by the function that ingestion reads it with; ``command``: by ``kedro
        run``.
    pipelines, data, store, conf
        Of the run; places are below the folder of the case, and ``conf`` is a file written over the
        project's.
    """

    name: str
    mentions: tuple[str, ...]
    parameters: str = ""
    spoil: Spoil = lambda _: None
    by: Literal["reader", "command"] = "command"
    pipelines: str = "ingestion"
    data: str = "{place}/data"
    store: str = "{place}/store"
    conf: tuple[str, bytes] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a case, with the sentence or the error; and whether anything was saved."""

    kind: Literal["fine", "said", "raw"]
    text: str = ""
    saved: bool = False


def verdict(case: Case, found: Outcome) -> str:
    """Return what is wrong with what became of a case; nothing where all is well."""
    if not case.mentions:
        return "" if found.kind == "fine" else f"is fine and was refused: {found.text}"
    if found.kind != "said":
        return f"{found.kind}: {found.text}"
    if found.saved:
        return f"was refused after a node had saved something: {found.text}"
    if missing := [part for part in case.mentions if part not in found.text]:
        return f"{missing} is not in: {found.text}"
    return "" if len(found.text) < 1500 else f"is told in {len(found.text)} characters"


def try_case(case: Case, place: Path) -> Outcome:
    """Do what a user would with a case, in a folder of its own."""
    collection = Collection(place / "mine")
    case.spoil(collection)
    if case.by == "reader":
        return _read(case, collection)
    given = case.parameters.replace("{place}", str(place))
    if not re.search(r"(^|,)collection=", given):
        given = ",".join(part for part in (f"collection=beir:{collection.path}", given) if part)
    arguments = ["run", "--pipelines", case.pipelines, "--params", given]
    data, store = (text.replace("{place}", str(place)) for text in (case.data, case.store))
    conf: list[str] = []
    if case.conf is not None:
        shutil.copytree(ROOT / "conf", place / "conf", ignore=shutil.ignore_patterns("local"))
        (place / "conf" / "local").mkdir()
        (place / "conf" / case.conf[0]).write_bytes(case.conf[1])
        conf = ["--conf-source", str(place / "conf")]
    with _at_home(data, store) as cli:
        outcome = outcome_of(
            CliRunner().invoke(cli, [*arguments, *conf, "--env", "test"]), Path(data)
        )
    if outcome.saved:
        # A process of its own would have let go of the store of a run that failed.
        gc.collect()
    return outcome


def outcome_of(done: Result, data: Path) -> Outcome:
    """Return what became of a run from what it printed and left."""
    try:
        saved = data.is_absolute() and bool(artifacts(data))
    except OSError:
        # No folder can be called so.
        saved = False
    if done.exit_code == 0:
        return Outcome("fine", saved=saved)
    lines = re.findall(r"^Error: .*$", done.stderr, flags=re.MULTILINE)
    plain = (
        isinstance(done.exception, SystemExit)
        and "Traceback" not in done.stderr
        and len(lines) == 1
    )
    return (
        Outcome("said", lines[0], saved) if plain else Outcome("raw", repr(done.exception), saved)
    )


def artifacts(data: Path) -> list[str]:
    """Return what lies in the catalog's folders, without the record and log of a failed run."""
    return sorted(
        path.name
        for path in data.glob("*/*")
        if path.parent.name not in ("runs", "logs", "tracking")
    )


def _read(case: Case, collection: Collection) -> Outcome:
    from anmi.cli.common import user_error
    from anmi.corpus.sources import load_collection

    kind, _, options = case.parameters.partition(" ")
    try:
        load_collection(f"{kind or 'beir'}:{collection.path}{options}", language="en")
    except Exception as error:
        said = user_error(error)
        return Outcome("raw", repr(error)) if said is None else Outcome("said", said)
    return Outcome("fine")


@contextmanager
def _at_home(data: str, store: str) -> Any:
    """Give the project's command, in its folder and without MLflow's database, which is slow."""
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(ROOT)
    from anmi.cli import cli

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with (
            mock.patch.dict(os.environ, {"ANMI_DATA_ROOT": data, "ANMI_STORE": store}),
            mock.patch("anmi.hooks.mlflow.MlflowHooks.before_pipeline_run", lambda *_, **__: None),
        ):
            yield cli
    finally:
        os.chdir(before)


Damage = list[str] | bytes | tuple[int, str] | Callable[[Collection, str], object]
"""All lines of a file, its bytes, one line of it by its number, or what is done."""


def _damage(name: str, damage: Damage, collection: Collection) -> None:
    if isinstance(damage, bytes):
        (collection.path / name).write_bytes(damage)
    elif isinstance(damage, list):
        collection.write(name, damage)
    elif isinstance(damage, tuple):
        collection.change(name, *damage)
    else:
        damage(collection, name)


def _of_files(reader: str, *rows: tuple[str, str, Damage, str]) -> list[Case]:
    """Return cases of a reader, from rows of name, file, damage and what is said after its name."""
    return [
        Case(
            name,
            tuple(f"{Path(file).name} {mentions}".strip().split(" | ")),
            reader,
            partial(_damage, file, damage),
            "reader",
        )
        for name, file, damage, mentions in rows
    ]


def _document(number: int, **fields: Any) -> tuple[int, str]:
    """Return a document with other fields, and its line."""
    return number, json.dumps({"_id": f"d{number - 1}", "text": "a", **fields})


def _labels(row: str, queries: range = range(20)) -> list[str]:
    return [HEADER, *(row.format(i=i) for i in queries)]


def _added(*lines: str) -> Damage:
    return lambda c, name: c.add(name, *lines)


def _replaced(by: Callable[[Path], object]) -> Damage:
    def spoil(c: Collection, name: str) -> None:
        c.remove(name)
        by(c.path / name)

    return spoil


def _other_split(c: Collection, name: str) -> None:
    c.remove(DEV, TEST)
    (c.path / TRAIN).rename(c.path / name)


def _file_of_labels(c: Collection, name: str) -> None:
    shutil.rmtree(c.path / name)
    (c.path / name).write_text("x")


def _number_and_text(c: Collection, name: str) -> None:
    c.change(name, *_document(3, _id=7))
    c.change(name, *_document(4, _id="7", text="b"))


def _alike(c: Collection, _: str) -> None:
    c.write(QUERIES, [json.dumps({"_id": f"q{i}", "text": "the same"}) for i in range(40)])


def _two_binary_files(c: Collection, _: str) -> None:
    for name in ("a.txt", "a.b.txt"):
        (c.path / name).write_bytes(b"a\0fox")


def _graph(*lines: str) -> Damage:
    return lambda c, name: c.graph().add(name, *lines)


def _graph_without(c: Collection, name: str) -> None:
    c.graph().remove(name)


ENTITIES, TRIPLES, PAIRS, TABLE = "entities.jsonl", "triples.tsv", "p.jsonl", "a.csv"
_EMPTY = [json.dumps({"_id": f"d{i}", "text": ""}) for i in range(40)]
_NESTED = '{"_id": "d2", "text": "a", "metadata": ' + "[" * 100_000
_LIST = ["[", ' {"_id": "a", "text": "b"}', "]"]
_FEED = '{"_id": "q\\n2", "text": "a"}'
_CONTROL = "line 3 | control character | give it another"
_SCORE = 'line 2 | "q0 d0" | relevance | correct the file'

PARAMETERS: Final = [
    Case(f"--params {text}", tuple(mentions), text)
    for text, mentions in yaml.safe_load(
        Path(__file__).with_name("bad_parameters.yml").read_text(encoding="utf-8")
    ).items()
]

FILES: Final = [
    *_of_files(
        "beir",
        ("no folder", "", lambda c, _: shutil.rmtree(c.path), "mine | is not a folder"),
        ("no corpus", CORPUS, lambda c, name: c.remove(name), "| does not exist"),
        ("labels of no split", "qrels/all.tsv", _other_split, "| call it train.tsv, dev.tsv or"),
        ("a folder for the corpus", CORPUS, _replaced(Path.mkdir), "| does not exist"),
        ("a file for the folder of labels", "qrels", _file_of_labels, "is a file | train.tsv"),
        ("a link to itself", CORPUS, _replaced(lambda p: p.symlink_to(p)), "| put the file itself"),
        ("a link out of the folder", CORPUS, _replaced(lambda p: p.symlink_to(__file__)), ""),
        ("a pipe for the corpus", CORPUS, _replaced(os.mkfifo), "| does not exist"),
        ("an empty corpus", CORPUS, [], "| is empty"),
        ("a corpus of blank lines", CORPUS, ["", "  "], "| is empty"),
        ("Latin-1", QUERIES, b'{"_id": "q0", "text": "\xe9"}\n', "line 1 | UTF-8"),
        ("UTF-16", CORPUS, "x".encode("utf-16"), "line 1 | UTF-8"),
        ("compressed", CORPUS, gzip.compress(b"x"), "line 1 | UTF-8"),
        ("lines that end with CR alone", CORPUS, b'{"_id": "d0"}\r{}\r', "line 1 | JSON object"),
        ("broken JSON", CORPUS, (17, '{"_id": "d16", "te'), "line 17 | JSON object"),
        ("two objects on a line", CORPUS, (3, '{"_id": "a"}{"_id": "b"}'), "line 3 | JSON object"),
        ("one list for the file", CORPUS, _LIST, "line 1 | JSON object"),
        ("JSON nested without end", CORPUS, (3, _NESTED), "line 3 | JSON object"),
        ("a zero byte on a line", CORPUS, (3, '{"_id": "d\0"}'), "line 3"),
        ("CSV", CORPUS, ["_id,text", "d0,a"], "line 1 | JSON object"),
        ("no id", CORPUS, (5, '{"text": "a"}'), 'line 5 | "_id"'),
        ("no text", QUERIES, (6, '{"_id": "q5"}'), 'line 6 | "text" | columns.text'),
        ("a blank id", CORPUS, _document(3, _id="  "), 'line 3 | "_id"'),
        ("an id that is a fraction", CORPUS, _document(3, _id=1.5), 'line 3 | "_id"'),
        ("an id of 5,000 digits", CORPUS, (3, '{"_id": ' + "9" * 5000 + "}"), "line 3"),
        ("a zero byte in an id", CORPUS, _document(3, _id="d\x002"), f"{_CONTROL} | d\\x002"),
        ("a line feed in an id", QUERIES, (3, _FEED), _CONTROL),
        ("an escape sequence in an id", CORPUS, _document(3, _id="\x1b[2J"), _CONTROL),
        ("a zero byte in a label", TRAIN, (3, "q1\0\td1\t1"), _CONTROL),
        ("an id of a megabyte", CORPUS, _document(3, _id="d" * 10**6), "line 3 | than 1,000 char"),
        ("a repeated id", CORPUS, _document(9, _id="d2"), 'line 9 | "d2" | line 3'),
        ("a number and its text as ids", CORPUS, _number_and_text, 'line 4 | "7" | line 3'),
        (
            "a repeated query",
            QUERIES,
            _added('{"_id": "q0", "text": "b"}'),
            'line 41 | "q0" | line 1',
        ),
        ("a text that is a number", CORPUS, _document(3, text=3), 'line 3 | "text"'),
        ("only empty documents", CORPUS, _EMPTY, "line 1 | 40 of 40 documents | empty"),
        ("no header", DEV, _labels("q{i}\td{i}\t1")[1:], "line 1 | query-id"),
        ("only a header", TRAIN, [HEADER], "| no rows"),
        ("a header of two columns", TRAIN, (1, "query-id\tcorpus-id"), "line 1 | query-id"),
        ("labels in the format of TREC", TRAIN, _labels("q{i}\t0\td{i}\t1"), "line 2 | 4 columns"),
        ("labels separated by blanks", TRAIN, _labels("q{i} d{i} 1"), "line 2 | tabs"),
        ("labels separated by commas", TRAIN, (1, "query-id,corpus-id,score"), "line 1 | TAB"),
        ("columns in another order", TRAIN, _labels("d{i}\tq{i}\t1"), "line 2 | unknown"),
        ("relevance of nan", TRAIN, _labels("q{i}\td{i}\tnan"), _SCORE),
        ("relevance of 0.5", TRAIN, _labels("q{i}\td{i}\t0.5"), _SCORE),
        ("relevance in words", TRAIN, _labels("q{i}\td{i}\tyes"), _SCORE),
        ("relevance left out", TRAIN, _labels("q{i}\td{i}\t"), _SCORE),
        ("relevance of 2**63", TRAIN, _labels(f"q{{i}}\td{{i}}\t{2**63}"), f"{_SCORE} | 1,000,000"),
        ("unknown documents", TRAIN, _labels("q{i}\tx{i}\t1"), "line 2 | unknown"),
        ("documents as numbers", TRAIN, _labels("q{i}\td{i}.0\t1"), 'line 2 | "d0.0" | as written'),
        ("unknown queries", TEST, _labels("x{i}\td{i}\t1"), "line 2 | unknown"),
        (
            "train and test share a query",
            TEST,
            _added("q3\td3\t1"),
            'line 12 | "q3" | train.tsv line 5',
        ),
        ("dev is train", DEV, _labels("q{i}\td{i}\t1"), '| "q0" | one split only'),
        ("all queries alike", "", _alike, "nothing to mine for | with the text of a"),
    ),
    *_of_files(
        "kg",
        ("no entities", ENTITIES, _graph_without, "| put them there"),
        ("no triples", TRIPLES, _graph_without, ""),
        ("an entity twice", ENTITIES, _graph('{"uri": "u:1"}'), "line 4 | u:1 | line 2"),
        ("an entity without a URI", ENTITIES, _graph("{}"), "line 4 | uri"),
        ("unknown heads", TRIPLES, _graph("u:7\tr\tu:0", "u:8\tr\tu:0"), "line 4 | u:7 | the head"),
        ("triples of two columns", TRIPLES, _graph("u:0\tr", "u:1\tr"), "line 4 | columns"),
    ),
    *_of_files(
        "pairs /p.jsonl",
        ("pairs without a document", PAIRS, ['{"query": "a"}'], 'line 1 | "document"'),
        ("pairs without a query", PAIRS, ['{"document": "a"}'], 'line 1 | "query"'),
        ("pairs that are lists", PAIRS, ['["a", "b"]'], "line 1 | JSON object"),
        ("pairs of empty texts", PAIRS, ['{"query": "a", "document": " "}'] * 9, "line | empty"),
        ("no pairs", PAIRS, [], "| is empty"),
    ),
    *_of_files(
        "docs /a.*",
        (
            "no column of text",
            TABLE,
            ["key,abstract", "1,a fox"],
            'line 2 | "abstract" | columns.text',
        ),
        ("a short row", TABLE, ["id,title,text", "1,a fox"], "line 2 | 2 columns | the header 3"),
        ("an open quote", TABLE, ["id,text", '1,"a fox', "2,a dog"], "line 2 | check its quotes"),
        ("a table in Latin-1", TABLE, b"id,text\n1,\xe9t\xe9\n", "line 2 | UTF-8"),
        ("an id twice in a table", TABLE, ["id,text", "1,fox", "1,dog"], 'line 3 | "1" | line 2'),
        ("a table with an id left out", TABLE, ["id,text", ",a fox"], 'line 2 | "id"'),
        ("a table with nothing in it", TABLE, [], "| no document | no text"),
        ("a table with a header alone", TABLE, ["id,text"], "| no document"),
        ("a file of no known kind", "a.docx", ["a fox"], "| no document | are not read | .md"),
        ("a binary file called text", "a.txt", gzip.compress(b"a fox"), "| no document | UTF-8"),
        (
            "two binary files",
            "",
            _two_binary_files,
            "2 of 2 files are damaged | .txt | max_quarantine",
        ),
        ("a PDF file that is none", "a.pdf", b"%PDF-1.7 a fox", "| no document | no PDF file"),
    ),
    *_of_files("pairs /p.jsonl@0", ("no pairs asked", PAIRS, ['{"query": "a"}'], "| no pair")),
]


def _without_line_end(c: Collection, name: str) -> None:
    (c.path / name).write_bytes((c.path / name).read_bytes()[:-1])


# What is survivable or right; it must not be refused.
FINE: Final = [
    replace(case, mentions=())
    for case in _of_files(
        "beir",
        ("no line end at the end", CORPUS, _without_line_end, ""),
        ("a line separator of Unicode in a text", CORPUS, _document(3, text="a\u2028b"), ""),
        ("a zero byte in a text", CORPUS, _document(3, text="a\0b"), ""),
        ("a line of 20 megabytes", CORPUS, _document(3, text="a " * 10_000_000), ""),
        ("metadata that is a text", CORPUS, _document(3, metadata="x"), ""),
        ("a title that is a list", CORPUS, _document(3, title=["a"]), ""),
        ("one test query", TEST, _labels("q{i}\td{i}\t1", range(30, 31)), ""),
    )
]


def _writing(variable: str, name: str, text: str, *mentions: str) -> Case:
    """Return a case of a place that is written to; none of its own is told as no folder."""
    mentions = mentions or (text.removeprefix("{place}/"), "folder that can be written to")
    setting = {"ANMI_DATA_ROOT": "data", "ANMI_STORE": "store"}[variable]
    return replace(Case(name, (variable, *mentions)), **{setting: text})


def _configured(name: str, content: bytes, *mentions: str, file: str = "parameters_mine") -> Case:
    return Case(name, mentions, conf=(f"test/{file}.yml", content))


_BROKEN: Final = ("parameters_mine.yml", "Correct the YAML")
_BY_COMMAND: Final = {
    "no folder",
    "labels of no split",
    "broken JSON",
    "a repeated id",
    "a zero byte in an id",
    "relevance of 2**63",
    "train and test share a query",
    "only empty documents",
}
RUNS: Final = [
    _writing("ANMI_DATA_ROOT", "a file for the data root", "{place}/mine/corpus.jsonl"),
    _writing("ANMI_DATA_ROOT", "a data root below a file", "{place}/mine/corpus.jsonl/x"),
    _writing("ANMI_DATA_ROOT", "no data root", "", "unset it"),
    _writing("ANMI_DATA_ROOT", "a blank data root", " ", "unset it"),
    _writing("ANMI_DATA_ROOT", "a data root of 300 letters", "{place}/" + "a" * 300, "written to"),
    _writing("ANMI_DATA_ROOT", "a data root that MLflow misreads", "{place}/a%20b", "a%20b"),
    Case("a data root that refers to nothing", ('"data"', "nothing"), data="${nothing}"),
    _writing("ANMI_STORE", "a file for the store", "{place}/mine/corpus.jsonl"),
    _writing("ANMI_STORE", "a store below a file", "{place}/mine/corpus.jsonl/x"),
    _writing("ANMI_STORE", "no store", "", "unset it"),
    _configured("a misspelt branch", b"evalution: {}\n", '"evalution"', 'mean "evaluation"'),
    _configured("a reserved name", b"recipes: {bm25: {extends: anmi}}\n", "bm25", "another system"),
    _configured(
        "a part of the search named twice",
        b"search: {parts: [bm25, bm25]}\n",
        *('"search.parts"', '"bm25" twice', "name each once"),
        file="parameters",
    ),
    _configured("broken YAML", b"seed: [1\n", *_BROKEN),
    _configured("YAML with tabs", b"seed:\n\t1\n", *_BROKEN),
    _configured("YAML that is a list", b"- seed\n", "parameters_mine.yml", "settings by name"),
    _configured("YAML in UTF-16", "seed: 1".encode("utf-16"), "parameters_mine.yml", "UTF-8"),
    _configured("a fraction for a seed", b"seed: 0.5\n", '"seed"', "a whole number from 0 to"),
    _configured("a number for the data root", b"data: 3\n", "globals.yml", "3", file="globals"),
    # The same by the command as by the reader.
    *(
        replace(case, name=f"{case.name}, by the command", parameters="", by="command")
        for case in FILES
        if case.name in _BY_COMMAND
    ),
    Case(
        *("no facts for mixed sources", ("mixed sources", "kg:DIR"), "recipe=dnh_linear"),
        pipelines="mining,adaptation,training",
    ),
]
CASES: Final = (*PARAMETERS, *FILES, *FINE, *RUNS)
