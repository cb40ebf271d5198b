"""Every form of a collection that the page lists, tables of every kind, pairs and ir_datasets."""

from __future__ import annotations

import gzip
import json
import re
import uuid
from pathlib import Path
from typing import Any

import ir_datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from datasets import Dataset, DatasetDict

from anmi.corpus.rows import USUAL, read_rows
from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError

PAGE = Path(__file__).parents[2] / "docs" / "collections.md"
ROWS = [
    {"question": f"who is {i}?", "answer": f"person number {i}", "negative_1": f"nobody {i}"}
    for i in range(60)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a table as what its ending says."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    kind = "".join(path.suffixes[-2:])
    if kind == ".parquet":
        pd.DataFrame(rows).to_parquet(path, row_group_size=7)
    elif kind == ".feather":
        pyarrow.feather.write_feather(pa.Table.from_pylist(rows), path)
    elif kind == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(path, table.schema) as file:
            file.write_table(table, max_chunksize=7)
    elif kind in (".csv", ".tsv", ".csv.gz"):
        pd.DataFrame(rows).to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    else:
        path.write_bytes(gzip.compress(lines.encode()) if kind.endswith(".gz") else lines.encode())
    return path


TEXTS = {
    "corpus": [{"_id": f"d{i}", "text": row["answer"]} for i, row in enumerate(ROWS)],
    "queries": [{"_id": f"q{i}", "text": row["question"]} for i, row in enumerate(ROWS)],
}
LABELS = {
    split: [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in rows]
    for split, rows in zip(
        ("train", "dev", "test"), np.arange(60).reshape(3, 20).tolist(), strict=True
    )
}


def write_beir(folder: Path, ending: str = ".jsonl", labels: str = ".tsv") -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, texts in TEXTS.items():
        write(folder / f"{name}{ending}", texts)
    for split, rows in LABELS.items():
        if labels in (".tsv", ".parquet"):
            write(folder / "qrels" / f"{split}{labels}", rows)
        else:
            lines = "".join("{query-id} 0 {corpus-id}\t{score}\n".format(**row) for row in rows)
            (folder / "qrels" / f"{split}{labels}").write_text(lines)
    return folder


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """What the page's examples read, with the documents and labels that are in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("faq.csv", "part_1.jsonl.gz", "part_2.jsonl.gz"):
        write(tmp_path / name, ROWS)
    write(tmp_path / "more.arrow", [{"query": "another?", "positive": "yes, another"}])
    products = [{"ID": i, "Title": "t", "Text": row["answer"]} for i, row in enumerate(ROWS)]
    write(tmp_path / "products.parquet", products)
    Path("notes").mkdir()
    Path("notes/a.md").write_text("# A\n\nSome words on a.")
    write_beir(Path("scifact"))
    write_beir(Path("webnlg"))
    DatasetDict({"train": Dataset.from_list(ROWS)}).save_to_disk("saved")
    save_beir(Path("mteb"), Path("mteb/default"))
    write(Path("webnlg/entities.jsonl"), [{"uri": f"u:{name}", "label": name} for name in "ab"])
    Path("webnlg/triples.tsv").write_text("head\trelation\ttail\nu:a\tr\tu:b\n")
    counts = """docs:notes 1 0 | docs:products.parquet 60 0 | pairs:faq.csv 120 60
    | pairs:part_*.jsonl.gz@50;more.arrow 101 51 | beir:scifact 60 60 | kg:webnlg 60 60
    | hf:saved 120 60 | hf:mteb::test 60 20"""
    examples = (example.split() for example in counts.split(" | "))
    return {name: (int(documents), int(labels)) for name, documents, labels in examples}


def test_the_examples_of_the_page_are_read(examples: dict[str, tuple[int, int]]) -> None:
    page = PAGE.read_text(encoding="utf-8").split("## Tables")[0]
    listed = re.findall(r"^\|.*?\| `(.+?)` \|", page, re.MULTILINE)
    # One would download, the other reads what is installed; both have tests of their own.
    assert set(listed) == {*examples, "ir_datasets:beir/scifact/train", "api_docs"}
    for collection, (documents, labels) in examples.items():
        found = load_collection(collection, language="en")
        assert (len(found.corpus), len(found.qrels)) == (documents, labels), collection
        assert set(found.quarantine.reason) <= {"no label names the query"}


@pytest.mark.parametrize(
    "ending", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".parquet", ".arrow", ".feather"]
)
def test_every_kind_of_table_gives_the_same_rows(ending: str, tmp_path: Path) -> None:
    assert list(read_rows(write(tmp_path / f"a{ending}", ROWS)))[:2] == [
        (line + ("csv" in ending or "tsv" in ending), row) for line, row in enumerate(ROWS[:2], 1)
    ]
    found = load_collection(f"pairs:{tmp_path}/a{ending}", language="en")
    assert (len(found.qrels), len(found.judged), len(found.corpus)) == (60, 60, 120)
    assert found.corpus.text[0] == ROWS[0]["answer"] and found.corpus.text[1] == "nobody 0"


@pytest.mark.parametrize(
    ("ending", "labels"),
    [(".parquet", ".parquet"), (".jsonl.gz", ".trec"), (".parquet", ".txt"), (".jsonl", ".qrels")],
)
def test_a_folder_of_beir_is_the_same_in_every_form(
    ending: str, labels: str, tmp_path: Path
) -> None:
    one, other = write_beir(tmp_path / "one"), write_beir(tmp_path / "other", ending, labels)
    expected, found = (load_collection(f"beir:{folder}", language="en") for folder in (one, other))
    for name in ("corpus", "queries", "qrels"):
        assert getattr(found, name).equals(getattr(expected, name)), name


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ('"To be" is from?\tHamlet\n', [(2, '"To be" is from?', "Hamlet")]),
        ('7\t"one\ntwo ""2"""\n8\tb\n', [(2, "7", 'one\ntwo "2"'), (4, "8", "b")]),
        ('"open\ta\n\nb\t"c" d\n', [(2, '"open', "a"), (4, "b", '"c" d')]),
        ('a\t"\nb\t"end', [(2, "a", '"'), (3, "b", '"end')]),
    ],
    ids=["plain", "quoted", "mixed", "never closed"],
)
def test_quotes_in_tsv_are_plain_unless_they_enclose_a_field(
    rows: str, expected: list[tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text(f"question\tanswer\n{rows}")
    assert [(line, *row.values()) for line, row in read_rows(tmp_path / "a.tsv")] == expected


def test_the_same_row_again_and_rows_without_a_value_are_set_aside(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "a")
    for name in TEXTS:
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(TEXTS[name][3]) + '\n{"_id": "x", "title": NaN, "text": NaN}\n')
    found = load_collection(f"beir:{folder}", max_quarantine=0.05)
    assert len(found.corpus) == len(found.queries) == 60
    expected = [
        ["document", "d3", 61],
        ["document", "x", 62],
        ["query", "q3", 61],
        ["query", "x", 62],
    ]
    assert found.quarantine[["kind", "id", "line"]].values.tolist() == expected
    with (folder / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "d3", "text": "another"}')
    with pytest.raises(AnmiError, match=r'line 63 repeats the id "d3" of .*line 4 with another'):
        load_collection(f"beir:{folder}")


@pytest.mark.parametrize("ending", [".tsv", ".parquet"])
@pytest.mark.parametrize(
    "names", [["corpus-id", "query-id", "score"], ["Document_ID", "run", "relevance", "query_id"]]
)
def test_columns_of_labels_go_by_their_names_and_ids_have_no_blanks_around_them(
    names: list[str], ending: str, tmp_path: Path
) -> None:
    expected = load_collection(f"beir:{write_beir(tmp_path / 'plain')}", language="en")
    folder = write_beir(tmp_path / "other", ".parquet")
    for name, texts in TEXTS.items():
        write(folder / f"{name}.parquet", [text | {"_id": f" {text['_id']} "} for text in texts])
    for split, rows in LABELS.items():
        (folder / "qrels" / f"{split}.tsv").unlink()
        labels = [dict.fromkeys(names, "1") for _ in rows]
        for label, row in zip(labels, rows, strict=True):
            label |= {name: f"{row['query-id']} " for name in names if name.startswith("q")}
            label |= {name: f"{row['corpus-id']} " for name in names if name[0] in "cDd"}
        write(folder / "qrels" / f"{split}{ending}", labels)
    found = load_collection(f"beir:{folder}", language="en")
    assert found.qrels.equals(expected.qrels)
    assert found.corpus.document_id.equals(expected.corpus.document_id)


def save_beir(folder: Path, labels: Path) -> Path:
    """Save a collection as `datasets` does."""
    for name, texts in TEXTS.items():
        DatasetDict({name: Dataset.from_list(texts)}).save_to_disk(folder / name)
    parts = {
        split: Dataset.from_list([row | {"score": 1.0} for row in rows])
        for split, rows in LABELS.items()
    }
    DatasetDict({"validation": parts.pop("dev"), **parts}).save_to_disk(labels)
    return folder


@pytest.mark.parametrize("form", ["one folder", "two folders", "a card"])
def test_datasets_reads_what_beir_and_mteb_publish(form: str, tmp_path: Path) -> None:
    expected = load_collection(f"beir:{write_beir(tmp_path / 'plain')}", language="en")
    place = tmp_path / "mine"
    if form == "a card":
        write_beir(place, ".parquet", ".parquet")
        files = {part: f"data_files: {part}.parquet" for part in ("corpus", "queries")}
        splits = "".join(f"\n  - split: {x}\n    path: qrels/{x}.parquet" for x in LABELS)
        files["default"] = f"data_files:{splits}"
        card = "".join(f"- config_name: {name}\n  {text}\n" for name, text in files.items())
        (place / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
        before = pd.read_parquet(place / "corpus.parquet")
        before[:50].to_parquet(place / "corpus.parquet")
        load_collection(f"hf:{place}", language="en")
        before.to_parquet(place / "corpus.parquet")
    else:
        save_beir(place, place / "qrels" if form == "one folder" else tmp_path / "mine-qrels")
    found = load_collection(f"hf:{place}", language="en")
    for name in ("corpus", "queries", "qrels"):
        assert getattr(found, name).equals(getattr(expected, name)), name
    one = load_collection(f"hf:{place}::test", language="en")
    assert len(one.qrels) == 20 and set(one.qrels.split) == {"train", "test"}, (
        "a split that is named is cut"
    )


def test_datasets_reads_one_of_several_languages_that_it_saved(tmp_path: Path) -> None:
    expected = load_collection(f"beir:{write_beir(tmp_path / 'plain')}", language="en")
    for language in ("as", "en"):
        save_beir(tmp_path / language, tmp_path / language / "qrels")
        for part in ("corpus", "queries", "qrels"):
            (tmp_path / "mine").mkdir(exist_ok=True)
            (tmp_path / language / part).rename(tmp_path / "mine" / f"{language}-{part}")
    found = load_collection(f"hf:{tmp_path}/mine:as", language="en")
    assert found.corpus.equals(expected.corpus) and found.qrels.equals(expected.qrels)
    with pytest.raises(AnmiError, match="has a corpus for each of as, en; name one: hf:"):
        load_collection(f"hf:{tmp_path}/mine:xx")


def test_datasets_reads_pairs(tmp_path: Path) -> None:
    splits = {"train": Dataset.from_list(ROWS[:40]), "test": Dataset.from_list(ROWS[39:])}
    DatasetDict(splits).save_to_disk(tmp_path / "saved")
    for name, part in splits.items():
        part.to_parquet(tmp_path / "files" / f"{name}-0.parquet")
    for place in ("saved", "files"):
        found = load_collection(f"hf:{tmp_path / place}", language="en")
        assert (found.queries.split == "test").sum() == 21 and len(found.corpus) == 120
        assert found.quarantine.reason.tolist() == ["a train query with the text of a test query"]
    splits["train"].save_to_disk(tmp_path / "one")
    assert len(load_collection(f"hf:{tmp_path / 'one'}", language="en").qrels) == 40
    (tmp_path / "none").mkdir()
    pd.DataFrame({"_id": [], "text": []}).to_parquet(
        write_beir(tmp_path / "empty", ".parquet") / "corpus.parquet"
    )
    with pytest.raises(AnmiError, match=r"corpus\.parquet has no row"):
        load_collection(f"beir:{tmp_path / 'empty'}")
    DatasetDict(splits | {"test": splits["test"].select([])}).save_to_disk(tmp_path / "half")
    for location, words in {"none": "none cannot", "half": "cannot", "saved::dev": '"dev"'}.items():
        with pytest.raises(AnmiError, match=words):
            load_collection(f"hf:{tmp_path / location}")


@pytest.mark.parametrize(
    ("query", "positive"),
    [("query", name) for name in USUAL["positive"]]
    + [(name, "answer") for name in USUAL["query"][1:]],
)
def test_usual_names_in_any_case_and_the_plural(query: str, positive: str, tmp_path: Path) -> None:
    rows = [
        {query.upper(): f"q {i}", f"{positive}s": [f"a {i}", {"title": "T", "text": f"b {i}"}]}
        for i in range(30)
    ]
    found = load_collection(f"pairs:{write(tmp_path / 'a.jsonl', rows)}", language="en")
    assert (len(found.queries), len(found.qrels)) == (30, 60)
    assert found.corpus[["title", "text"]].values.tolist()[:2] == [["", "a 0"], ["T", "b 0"]]


def test_labels_negatives_and_titles_of_pairs(tmp_path: Path) -> None:
    shared = {"labels": [1, 0, 2], "year": 1999}
    texts = {"query": "q", "Title": "t", "negative_2": "m"}
    rows: list[dict[str, Any]] = [
        {name: f"{text} {i}" for name, text in texts.items()} | shared for i in range(30)
    ]
    for i, row in enumerate(rows):
        row |= {"documents": [f"a {i}", f"b {i}", f"c {i}"], "hard-negatives": [f"n {i}", None]}
    found = load_collection(f"pairs:{write(tmp_path / 'a.parquet', rows)}", language="en")
    assert found.qrels.relevance.tolist() == [1, 2] * 30
    text = found.corpus.set_index("document_id").text
    assert text[found.judged.document_id].tolist()[:3] == ["b 0", "m 0", "n 0"]
    assert found.corpus.title[0] == "t 0" and json.loads(found.corpus.metadata[0]) == {"year": 1999}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.parquet", b"PAR1 no", "a.parquet is not in its format"),
        ("a.arrow", b"no", "a.arrow is not in its format"),
        ("a.jsonl.gz", gzip.compress(b'{"query": "a"}', mtime=0)[:-6], "cannot be read"),
        ("a.md", b"# A", "a.md is no table"),
        ("a.jsonl", b'{"query": ["a", "b"], "positive": "c"}', "2 queries"),
        ("a.jsonl", b'{"query": "a", "positive": 3}', 'has a "positive" that is no text'),
        ("a.jsonl", b'{"query": "a", "positive": ["b", "c"], "label": [1, 0, 1]}', "3 labels"),
    ],
)
def test_a_table_that_is_none(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AnmiError, match=words):
        load_collection(f"pairs:{tmp_path / name}")


def chunk(*numbers):
    more = {"query_type": "phrase", "doc_type": "sentence", "language": "en"}
    return [{"query": f"the query {i}", "document": f"the document {i}", **more} for i in numbers]


def test_equal_texts_merge_and_chunks_are_read_in_the_order_of_their_numbers(tmp_path):
    more = [
        {"query": "the query 10", "document": "another"},
        {"query": "a new one", "document": "the document 13"},
    ]
    chunks = {
        10: chunk(*range(100, 120)),
        2: chunk(*range(20, 40)),
        1: chunk(*range(10, 20)) + more,
    }
    for number, rows in chunks.items():
        write(tmp_path / f"part_{number}.jsonl", rows)
    found = load_collection(f"pairs:{tmp_path}/part_*.jsonl@42")
    texts = [f"the document {i}" for i in (*range(10, 20), *range(20, 40), *range(100, 110))]
    assert found.corpus["text"][found.corpus["text"] != "another"].tolist() == texts
    assert (len(found.corpus), len(found.queries), len(found.qrels)) == (41, 41, 42)
    for name in ("query_id", "document_id"):
        assert found.qrels.groupby(name).size().max() == 2
    assert json.loads(found.queries["metadata"][0]) == {"query_type": "phrase", "language": "en"}
    assert json.loads(found.corpus["metadata"][0])["doc_type"] == "sentence"


@pytest.fixture
def register(tmp_path):
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import JsonlDocs, TrecQrels, TsvQueries
    from ir_datasets.util import LocalDownload

    base = f"local-{uuid.uuid4().hex[:8]}"

    def local(name, line, rows):
        path = tmp_path / name
        path.write_text("".join(line.format(i=i) for i in rows), encoding="utf-8")
        return LocalDownload(path)

    def add(split, first, last, *, qrels="q{i} 0 d{i} 1\n"):
        line = '{{"doc_id": "d{i}", "text": "the document number {i}"}}\n'
        documents = local("docs.jsonl", line, range(40))
        docs = JsonlDocs(documents, lang="en", docstore_path=str(tmp_path / "docs.pklz4"))
        queries = TsvQueries(local(f"{split}.tsv", "q{i}\tthe query {i}\n", range(first, last)))
        labels = TrecQrels(local(f"{split}.qrels", qrels, range(first, last)), {1: "yes"})
        name = f"{base}/{split}" if split else base
        ir_datasets.registry.register(name, Dataset(docs, queries, labels))
        return name

    yield add
    for name in [name for name in ir_datasets.registry if name.startswith(base)]:
        del ir_datasets.registry._registered[name]


def test_siblings_become_dev_and_test(register):
    name = register("train", 0, 20)
    register("validation", 20, 30)
    register("test", 30, 40)
    found = load_collection(f"ir_datasets:{name}")
    assert found.queries["split"].value_counts().to_dict() == {"train": 20, "dev": 10, "test": 10}
    assert found.corpus["text"][3] == "the document number 3"
    assert found.language == "en"
    assert found.notes["ir_datasets"]["dev"].endswith("/validation")
    parent = load_collection(f"ir_datasets:{name.removesuffix('/train')}")
    assert parent.queries.equals(found.queries)


def test_a_dataset_without_splits_is_cut(register):
    found = load_collection(f"ir_datasets:{register('', 0, 40)}", dev_share=0.6, test_share=0.2)
    assert set(found.queries["split"]) == {"train", "dev", "test"}
    assert len(found.queries) == 40


def test_whatever_goes_wrong_is_said_in_one_sentence(register):
    name = register("train", 0, 20, qrels="q0 d0\n")
    with pytest.raises(AnmiError, match=r"RuntimeError: expected 4 columns"):
        load_collection(f"ir_datasets:{name}")
