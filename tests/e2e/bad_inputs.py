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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

import yaml
from click.testing import CliRunner, Result
from tests.corpus.conftest import Folder

ROOT: Final = Path(__file__).parents[2]
HEADER: Final = "query-id\tcorpus-id\tscore"
CORPUS, QUERIES, TRAIN, DEV, TEST = (
    "corpus.jsonl",
    "queries.jsonl",
    "qrels/train.tsv",
    "qrels/dev.tsv",
    "qrels/test.tsv",
)


class Collection:
    """A small BEIR folder that a test damages: 40 documents and queries, of which 20, 10 and 10 in the splits."""

    def __init__(self, path: Path, documents: int = 40) -> None:
        self.path = path
        Folder(path, documents, train=0.5, dev=0.25).write()

    def lines(self, name: str) -> list[str]:
        return (self.path / name).read_text(encoding="utf-8").splitlines()

    def write(self, name: str, lines: list[str], newline: str = "\n", mark: bytes = b"") -> None:
        (self.path / name).write_bytes(mark + "".join(line + newline for line in lines).encode())

    def change(self, name: str, number: int, line: str) -> None:
        lines = self.lines(name)
        lines[number - 1] = line
        self.write(name, lines)

    def add(self, name: str, *lines: str) -> None:
        self.write(name, [*self.lines(name), *lines])

    def label(self, split: str, queries: range, row: str = "q{i}\td{i}\t1") -> None:
        self.write(f"qrels/{split}.tsv", [HEADER, *(row.format(i=i) for i in queries)])

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
    """What became of a case: ``fine``, ``said`` with its sentence, or ``raw``; and whether anything was saved."""

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
    """Return what lies in the catalog's folders; the record and the log of a failed run are meant to stay."""
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
    """Give the project's command, in its folder and without a database of MLflow, which takes seconds to make."""
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


def _of_files(rows: dict[str, tuple[Spoil, tuple[str, ...]]], reader: str = "beir") -> list[Case]:
    return [
        Case(name, mentions, reader, spoil, "reader") for name, (spoil, mentions) in rows.items()
    ]


_SEED = ('"seed"', "a whole number from 0 to 2**32 - 1", "not")
_RESERVED = ("results use the name for another system", "call the recipe otherwise")

PARAMETERS: Final = [
    Case(f"--params {text}", tuple(mentions), text)
    for text, mentions in yaml.safe_load(
        Path(__file__).with_name("bad_parameters.yml").read_text(encoding="utf-8")
    ).items()
]


def _document(number: int, **fields: Any) -> Spoil:
    """Give a document other fields."""
    return lambda c: c.change(
        CORPUS, number, json.dumps({"_id": f"d{number - 1}", "text": "a", **fields})
    )


def _labels(score: str, split: str = "train") -> Spoil:
    """Give all labels of training another relevance."""
    return lambda c: c.label(split, range(20), "q{i}\td{i}\t" + score)


def _same_query(c: Collection) -> None:
    c.write(QUERIES, [json.dumps({"_id": f"q{i}", "text": "the same"}) for i in range(40)])


def _replaced(name: str, by: Callable[[Path], object]) -> Spoil:
    def spoil(c: Collection) -> None:
        c.remove(name)
        by(c.path / name)

    return spoil


_ID = ("give it another",)
_OBJECT = ("JSON object",)
_SCORE = ("train.tsv line 2", '"q0 d0"', "relevance", "correct the file")

FILES: Final = [
    *_of_files(
        {
            "no folder": (lambda c: shutil.rmtree(c.path), ("mine", "is not a folder")),
            "no corpus": (lambda c: c.remove(CORPUS), (CORPUS, "does not exist")),
            "labels of no split": (
                lambda c: (c.remove(DEV, TEST), (c.path / TRAIN).rename(c.path / "qrels/all.tsv")),
                ("all.tsv", "call it train.tsv, dev.tsv or test.tsv"),
            ),
            "a folder for the corpus": (_replaced(CORPUS, Path.mkdir), (CORPUS, "does not exist")),
            "a file for the folder of labels": (
                lambda c: (shutil.rmtree(c.path / "qrels"), (c.path / "qrels").write_text("x")),
                ("qrels is a file", "train.tsv"),
            ),
            "a link to itself": (
                _replaced(CORPUS, lambda path: path.symlink_to(path)),
                (CORPUS, "put the file itself there"),
            ),
            "a link out of the folder": (
                _replaced(CORPUS, lambda path: path.symlink_to(__file__)),
                (CORPUS,),
            ),
            "a pipe for the corpus": (_replaced(CORPUS, os.mkfifo), (CORPUS, "does not exist")),
            "an empty corpus": (lambda c: c.write(CORPUS, []), (CORPUS, "is empty")),
            "a corpus of blank lines": (
                lambda c: c.write(CORPUS, ["", "  "]),
                (CORPUS, "is empty"),
            ),
            "Latin-1": (
                lambda c: (c.path / QUERIES).write_bytes(b'{"_id": "q0", "text": "\xe9"}\n'),
                (f"{QUERIES} line 1", "UTF-8"),
            ),
            "UTF-16": (
                lambda c: (c.path / CORPUS).write_text("x", encoding="utf-16"),
                (f"{CORPUS} line 1", "UTF-8"),
            ),
            "compressed": (
                lambda c: (c.path / CORPUS).write_bytes(gzip.compress(b"x")),
                (f"{CORPUS} line 1", "UTF-8"),
            ),
            "lines that end with CR alone": (
                lambda c: c.write(CORPUS, c.lines(CORPUS), "\r"),
                (f"{CORPUS} line 1", *_OBJECT),
            ),
            "broken JSON": (
                lambda c: c.change(CORPUS, 17, '{"_id": "d16", "te'),
                (f"{CORPUS} line 17", *_OBJECT),
            ),
            "two objects on a line": (
                lambda c: c.change(CORPUS, 3, '{"_id": "a"}{"_id": "b"}'),
                (f"{CORPUS} line 3", *_OBJECT),
            ),
            "one list for the file": (
                lambda c: (c.path / CORPUS).write_text(
                    json.dumps([{"_id": "a", "text": "b"}], indent=1)
                ),
                (f"{CORPUS} line 1", *_OBJECT),
            ),
            "JSON nested without end": (
                lambda c: c.change(
                    CORPUS, 3, '{"_id": "d2", "text": "a", "metadata": ' + "[" * 100_000
                ),
                (f"{CORPUS} line 3", *_OBJECT),
            ),
            "a zero byte on a line": (
                lambda c: c.change(CORPUS, 3, '{"_id": "d\0"}'),
                (f"{CORPUS} line 3",),
            ),
            "CSV": (
                lambda c: c.write(CORPUS, ["_id,text", "d0,a"]),
                (f"{CORPUS} line 1", *_OBJECT),
            ),
            "no id": (
                lambda c: c.change(CORPUS, 5, '{"text": "a"}'),
                (f"{CORPUS} line 5", '"_id"'),
            ),
            "no text": (
                lambda c: c.change(QUERIES, 6, '{"_id": "q5"}'),
                (f"{QUERIES} line 6", '"text"', "columns.text"),
            ),
            "a blank id": (_document(3, _id="  "), (f"{CORPUS} line 3", '"_id"')),
            "an id that is a fraction": (_document(3, _id=1.5), (f"{CORPUS} line 3", '"_id"')),
            "an id of 5,000 digits": (
                lambda c: c.change(CORPUS, 3, '{"_id": ' + "9" * 5000 + "}"),
                (f"{CORPUS} line 3",),
            ),
            "a zero byte in an id": (
                _document(3, _id="d\x002"),
                (f"{CORPUS} line 3", "control character", "d\\x002", *_ID),
            ),
            "a line feed in an id": (
                lambda c: c.change(QUERIES, 3, '{"_id": "q\\n2", "text": "a"}'),
                (f"{QUERIES} line 3", "control character", *_ID),
            ),
            "an escape sequence in an id": (
                _document(3, _id="\x1b[2J"),
                (f"{CORPUS} line 3", "control character", *_ID),
            ),
            "a zero byte in a label": (
                lambda c: c.change(TRAIN, 3, "q1\0\td1\t1"),
                ("train.tsv line 3", "control character", *_ID),
            ),
            "an id of a megabyte": (
                _document(3, _id="d" * 1_000_000),
                (f"{CORPUS} line 3", "more than 1,000 characters", *_ID),
            ),
            "a repeated id": (_document(9, _id="d2"), (f"{CORPUS} line 9", '"d2"', "line 3")),
            "a number and its text as ids": (
                lambda c: (_document(3, _id=7)(c), _document(4, _id="7", text="b")(c)),
                (f"{CORPUS} line 4", '"7"', "line 3"),
            ),
            "a repeated query": (
                lambda c: c.add(QUERIES, '{"_id": "q0", "text": "another"}'),
                (f"{QUERIES} line 41", '"q0"', "line 1"),
            ),
            "a text that is a number": (_document(3, text=3), (f"{CORPUS} line 3", '"text"')),
            "only empty documents": (
                lambda c: c.write(
                    CORPUS, [json.dumps({"_id": f"d{i}", "text": ""}) for i in range(40)]
                ),
                ("40 of 40 documents", f"{CORPUS} line 1", "empty"),
            ),
            "no header": (lambda c: c.write(DEV, c.lines(DEV)[1:]), ("dev.tsv line 1", "query-id")),
            "only a header": (lambda c: c.write(TRAIN, [HEADER]), ("train.tsv", "no rows")),
            "a header of two columns": (
                lambda c: c.change(TRAIN, 1, "query-id\tcorpus-id"),
                ("train.tsv line 1", "query-id"),
            ),
            "labels in the format of TREC": (
                lambda c: c.label("train", range(20), "q{i}\t0\td{i}\t1"),
                ("train.tsv line 2", "4 columns"),
            ),
            "labels separated by blanks": (
                lambda c: c.label("train", range(20), "q{i} d{i} 1"),
                ("train.tsv line 2", "tabs"),
            ),
            "labels separated by commas": (
                lambda c: c.change(TRAIN, 1, "query-id,corpus-id,score"),
                ("train.tsv line 1", "TAB"),
            ),
            "columns in another order": (
                lambda c: c.label("train", range(20), "d{i}\tq{i}\t1"),
                ("train.tsv line 2", "unknown"),
            ),
            "relevance of nan": (_labels("nan"), _SCORE),
            "relevance of 0.5": (_labels("0.5"), _SCORE),
            "relevance in words": (_labels("yes"), _SCORE),
            "relevance left out": (_labels(""), _SCORE),
            "relevance of 2**63": (_labels(str(2**63)), (*_SCORE, "larger than 1,000,000")),
            "unknown documents": (
                lambda c: c.label("train", range(20), "q{i}\tx{i}\t1"),
                ("train.tsv line 2", "unknown"),
            ),
            "documents as numbers": (
                lambda c: c.label("train", range(20), "q{i}\td{i}.0\t1"),
                ("train.tsv line 2", '"d0.0"', "as written"),
            ),
            "unknown queries": (
                lambda c: c.label("test", range(20), "x{i}\td{i}\t1"),
                ("test.tsv line 2", "unknown"),
            ),
            "train and test share a query": (
                lambda c: c.add(TEST, "q3\td3\t1"),
                ('"q3"', "train.tsv line 5", "test.tsv line 12"),
            ),
            "dev is train": (lambda c: c.label("dev", range(20)), ('"q0"', "one split only")),
            "all queries alike": (_same_query, ("nothing to mine for", "with the text of a")),
        }
    ),
    *_of_files(
        {
            "no entities": (
                lambda c: c.graph().remove("entities.jsonl"),
                ("entities.jsonl", "put them there"),
            ),
            "no triples": (lambda c: c.graph().remove("triples.tsv"), ("triples.tsv",)),
            "an entity twice": (
                lambda c: c.graph().add("entities.jsonl", c.lines("entities.jsonl")[1]),
                ("entities.jsonl line 4", "u:1", "line 2"),
            ),
            "an entity without a URI": (
                lambda c: c.graph().add("entities.jsonl", "{}"),
                ("entities.jsonl line 4", "uri"),
            ),
            "unknown heads": (
                lambda c: c.graph().add("triples.tsv", "u:7\tr\tu:0", "u:8\tr\tu:0"),
                ("triples.tsv line 4", "u:7", "the head is no entity"),
            ),
            "triples of two columns": (
                lambda c: c.graph().add("triples.tsv", "u:0\tr", "u:1\tr"),
                ("triples.tsv line 4", "columns"),
            ),
        },
        "kg",
    ),
    *_of_files(
        {
            "pairs without a document": (
                lambda c: c.write("p.jsonl", ['{"query": "a"}']),
                ("p.jsonl line 1", '"document"'),
            ),
            "pairs without a query": (
                lambda c: c.write("p.jsonl", ['{"document": "a"}']),
                ("p.jsonl line 1", '"query"'),
            ),
            "pairs that are lists": (
                lambda c: c.write("p.jsonl", ['["a", "b"]']),
                ("p.jsonl line 1", *_OBJECT),
            ),
            "pairs of empty texts": (
                lambda c: c.write("p.jsonl", ['{"query": "a", "document": " "}'] * 9),
                ("p.jsonl line", "empty"),
            ),
            "no pairs": (lambda c: c.write("p.jsonl", []), ("p.jsonl", "is empty")),
        },
        "pairs /p.jsonl",
    ),
    *_of_files(
        {
            "a table without a text": (
                lambda c: c.write("a.csv", ["key,abstract", "1,a fox"]),
                ("a.csv line 2", '"key", "abstract"', "ingestion.columns.text"),
            ),
            "a table with a row that is short": (
                lambda c: c.write("a.csv", ["id,title,text", "1,a fox"]),
                ("a.csv line 2", "2 columns", "the header 3"),
            ),
            "a table with a quote that is open": (
                lambda c: c.write("a.csv", ["id,text", '1,"a fox', "2,a dog"]),
                ("a.csv line 2", "check its quotes"),
            ),
            "a table in Latin-1": (
                lambda c: (c.path / "a.csv").write_bytes(b"id,text\n1,\xe9t\xe9\n"),
                ("a.csv line 2", "UTF-8"),
            ),
            "a table with an id twice": (
                lambda c: c.write("a.csv", ["id,text", "1,a fox", "1,a dog"]),
                ("a.csv line 3", '"1"', "line 2"),
            ),
            "a table with an id left out": (
                lambda c: c.write("a.csv", ["id,text", ",a fox"]),
                ("a.csv line 2", '"id"'),
            ),
            "a table with nothing in it": (
                lambda c: c.write("a.csv", []),
                ("no document", "a.csv", "no text"),
            ),
            "a table with a header alone": (
                lambda c: c.write("a.csv", ["id,text"]),
                ("no document", "a.csv"),
            ),
            "a file of no known kind": (
                lambda c: c.write("a.docx", ["a fox"]),
                ("no document", "a.docx", "are not read", ".md"),
            ),
            "a binary file called text": (
                lambda c: (c.path / "a.txt").write_bytes(gzip.compress(b"a fox")),
                ("no document", "a.txt", "UTF-8"),
            ),
            "two binary files called text": (
                lambda c: [(c.path / name).write_bytes(b"a\0fox") for name in ("a.txt", "a.b.txt")],
                ("2 of 2 files are damaged", ".txt", "zero byte", "max_quarantine"),
            ),
            "a PDF file that is none": (
                lambda c: (c.path / "a.pdf").write_bytes(b"%PDF-1.7 a fox"),
                ("no document", "a.pdf", "no PDF file"),
            ),
        },
        "docs /a.*",
    ),
    *_of_files(
        {
            "a cap of no pairs": (
                lambda c: c.write("p.jsonl", ['{"query": "a"}']),
                ("no pair", "p.jsonl@0"),
            )
        },
        "pairs /p.jsonl@0",
    ),
]

# What is survivable or right; it must not be refused.
FINE: Final = _of_files(
    {
        "no line end at the end": (
            lambda c: (c.path / CORPUS).write_bytes((c.path / CORPUS).read_bytes()[:-1]),
            (),
        ),
        "a line separator of Unicode in a text": (_document(3, text="a\u2028b"), ()),
        "a zero byte in a text": (_document(3, text="a\0b"), ()),
        "a line of 20 megabytes": (_document(3, text="a " * 10_000_000), ()),
        "metadata that is a text": (_document(3, metadata="x"), ()),
        "a title that is a list": (_document(3, title=["a"]), ()),
        "one test query": (lambda c: c.label("test", range(30, 31)), ()),
    }
)

_THERE = "folder that can be written to"
RUNS: Final = [
    # Where it is written to.
    Case(
        "a file for the data root",
        ("mine/corpus.jsonl", "ANMI_DATA_ROOT", _THERE),
        data="{place}/mine/corpus.jsonl",
    ),
    Case(
        "a data root below a file",
        ("mine/corpus.jsonl/x", "ANMI_DATA_ROOT", _THERE),
        data="{place}/mine/corpus.jsonl/x",
    ),
    Case("no data root", ("ANMI_DATA_ROOT", "unset it"), data=""),
    Case("a blank data root", ("ANMI_DATA_ROOT", "unset it"), data=" "),
    Case("a data root of 300 letters", ("ANMI_DATA_ROOT", _THERE), data="{place}/" + "a" * 300),
    Case("a data root that MLflow misreads", ("ANMI_DATA_ROOT", "a%20b"), data="{place}/a%20b"),
    Case("a data root that refers to nothing", ('"data"', "nothing"), data="${nothing}"),
    Case(
        "a file for the store",
        ("mine/corpus.jsonl", "ANMI_STORE", _THERE),
        store="{place}/mine/corpus.jsonl",
    ),
    Case(
        "a store below a file",
        ("mine/corpus.jsonl/x", "ANMI_STORE", _THERE),
        store="{place}/mine/corpus.jsonl/x",
    ),
    Case("no store", ("ANMI_STORE", "unset it"), store=""),
    # Files of the configuration.
    Case(
        "a misspelt branch",
        ('"evalution"', 'did you mean "evaluation"'),
        conf=("test/parameters_mine.yml", b"evalution: {}\n"),
    ),
    Case(
        "a recipe named as a baseline",
        ("bm25", *_RESERVED),
        conf=("test/parameters_mine.yml", b"recipes: {bm25: {extends: anmi}}\n"),
    ),
    Case(
        "a part of the search named twice",
        ('"search.parts"', 'names the part "bm25" twice', "name each once"),
        conf=("test/parameters.yml", b"search: {parts: [bm25, bm25]}\n"),
    ),
    Case(
        "broken YAML",
        ("parameters_mine.yml", "Correct the YAML"),
        conf=("test/parameters_mine.yml", b"seed: [1\n"),
    ),
    Case(
        "YAML with tabs",
        ("parameters_mine.yml", "Correct the YAML"),
        conf=("test/parameters_mine.yml", b"seed:\n\t1\n"),
    ),
    Case(
        "YAML that is a list",
        ("parameters_mine.yml", "settings by name"),
        conf=("test/parameters_mine.yml", b"- seed\n"),
    ),
    Case(
        "YAML in UTF-16",
        ("parameters_mine.yml", "UTF-8"),
        conf=("test/parameters_mine.yml", "seed: 1".encode("utf-16")),
    ),
    Case(
        "YAML with a fraction for a seed", _SEED, conf=("test/parameters_mine.yml", b"seed: 0.5\n")
    ),
    Case(
        "a number for the data root",
        ("`data` in globals.yml", "3"),
        conf=("test/globals.yml", b"data: 3\n"),
    ),
    # Collections, and the same by the command as by the reader.
    *(
        Case(f"{case.name}, by the command", case.mentions, "", case.spoil)
        for case in FILES
        if case.name
        in (
            "no folder",
            "labels of no split",
            "broken JSON",
            "a repeated id",
            "a zero byte in an id",
            "relevance of 2**63",
            "train and test share a query",
            "only empty documents",
        )
    ),
    Case(
        "no facts for mixed sources",
        ("mixed sources", "kg:DIR"),
        "recipe=dnh_linear",
        pipelines="mining,adaptation,training",
    ),
]
CASES: Final = (*PARAMETERS, *FILES, *FINE, *RUNS)
