"""What a folder in the BEIR layout becomes, what is said of damaged ones, and what becomes of queries of one text."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.related import new_documents
from anmi.corpus.rows import read_texts
from anmi.corpus.sources import assemble, fingerprint, load_collection
from anmi.corpus.texts import document_texts
from anmi.corpus.types import Collection, Options, RawCollection, counts_by_reason, empty
from anmi.errors import AnmiError
from anmi.evaluation.metrics import evaluate
from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.params import IngestionParams


def reasons(collection):
    return collection.quarantine["reason"].value_counts().to_dict()


def test_a_clean_folder_comes_through_whole(folder):
    folder.documents[0]["metadata"] = {"triples": [["a", "b", "c"]]}
    found = load_collection(folder.write())
    assert found.queries["split"].value_counts().to_dict() == {"train": 24, "dev": 8, "test": 8}
    assert found.corpus["document_id"].tolist() == [f"d{i}" for i in range(40)]
    assert document_texts(found.corpus)[1].startswith("Title 1 the birch")
    assert json.loads(found.corpus["metadata"][0]) == {"triples": [["a", "b", "c"]]}
    assert found.qrels.loc[found.qrels["split"] == "test", "relevance"].tolist() == [2] * 8
    assert found.quarantine.empty
    assert list(found.quarantine.columns) == ["kind", "id", "file", "line", "reason"]
    assert found.language == "en"
    with_mark = load_collection(folder.write(newline="\r\n", prefix=b"\xef\xbb\xbf"))
    assert fingerprint(with_mark) == fingerprint(found), "a byte order mark and CRLF change nothing"


def test_dev_is_cut_from_train_where_there_is_none(folder):
    folder.qrels["train"] += folder.qrels.pop("dev")
    found = load_collection(folder.write(), dev_share=0.75)
    counts = found.queries["split"].value_counts()
    assert counts["test"] == 8 and counts["train"] + counts["dev"] == 32 and counts["dev"] >= 20
    assert "dev cut from train" in found.notes["splits"]
    assert fingerprint(load_collection(folder.write(), dev_share=0.75)) == fingerprint(found)
    other = load_collection(folder.write(), dev_share=0.75, seed=7)
    assert other.queries["split"].tolist() != found.queries["split"].tolist()


def test_of_few_labels_dev_is_not_cut_so_that_pseudo_queries_stand_in(folder):
    del folder.qrels["dev"]
    found = load_collection(folder.write(), dev_share=0.4)
    assert found.queries["split"].value_counts().to_dict() == {"train": 24, "test": 8}
    assert "splits" not in found.notes
    tables = found.corpus, found.queries, found.qrels, empty("document_id", "other_id")
    # Of the eight that no label names, those that are not new for test.
    assert (new_documents(*tables, new_queries=100, seed=1).split == "dev").sum() == 4


ONES = [f"q{i}\td{i}\t1" for i in range(40)]
ZEROS = [f"q{i}\td{i}\t0" for i in range(20)]
UNNAMED = "no label names the query"
HIGHER = "another label of the pair is higher"
FEW = {"labels": "none for training", "new_documents": "30 test queries have a label, and 60 are"}
ODD_LABELS = {
    "one": ({"train": ONES[:1]}, {"train": 1}, {UNNAMED: 39}, {}),
    "only dev": ({"dev": ONES[:30]}, {"dev": 30}, {UNNAMED: 10}, {"labels": "none for training"}),
    "only test": ({"test": ONES[:30]}, {"test": 30}, {UNNAMED: 10}, FEW),
    "contradicting": (
        {"train": ONES[:20] + ZEROS, "test": ONES[20:21]},
        {"train": 20, "test": 1},
        {HIGHER: 20},
        {},
    ),
    "all documents": (
        {"train": [f"q0\td{i}\t1" for i in range(40)], "test": ONES[1:2]},
        {"train": 1, "test": 1},
        {UNNAMED: 38},
        {"new_documents": "labels leave none to hold out"},
    ),
}


@pytest.mark.parametrize(
    ("labels", "counts", "quarantined", "notes"), ODD_LABELS.values(), ids=ODD_LABELS
)
def test_odd_labels_are_read_and_what_they_lack_is_said(folder, labels, counts, quarantined, notes):
    folder.qrels = labels
    found = ingest(folder.write(), IngestionParams(marks=None), 1)
    info = found["collection_info"]
    assert info["queries"] == counts and info["quarantined"].items() >= quarantined.items()
    assert info["notes"].keys() == notes.keys()
    assert all(text in info["notes"][name] for name, text in notes.items())
    assert (found["qrels"].relevance == 1).all()


def test_subset_caps_training_queries_only(folder):
    small = load_collection(folder.write(), subset=5)
    large = load_collection(folder.write(), subset=10)
    train = [set(found.queries.query("split == 'train'")["query_id"]) for found in (small, large)]
    assert [len(found) for found in train] == [5, 10]
    assert train[0] < train[1]
    assert len(small.corpus) == 40
    assert (small.queries["split"] != "train").sum() == 16
    assert set(small.qrels["query_id"]) == set(small.queries["query_id"])


@pytest.mark.parametrize(
    ("splits", "left"), [(["test"], {"test": 8}), (["dev", "test"], {"dev": 8, "test": 8})]
)
def test_without_training_labels_no_split_is_cut_from_another(folder, splits, left):
    folder.qrels = {split: folder.qrels[split] for split in splits}
    found = load_collection(folder.write())
    assert found.queries["split"].value_counts().to_dict() == left
    assert set(found.qrels["split"]) == set(splits)
    assert found.notes["labels"] == "none for training"


@pytest.mark.parametrize("asked", [True, False])
def test_without_any_labels_the_corpus_is_what_there_is(folder, asked):
    labelled = load_collection(folder.write())
    shutil.rmtree(folder.path / "qrels")
    if not asked:
        (folder.path / "queries.jsonl").unlink()
    found = load_collection(f"beir:{folder.path}")
    assert found.corpus.equals(labelled.corpus)
    assert (len(found.queries), len(found.qrels)) == (0, 0)
    for name in ("queries", "qrels", "equivalents", "duplicates"):
        assert getattr(found, name).dtypes.equals(getattr(labelled, name).dtypes)
    assert reasons(found) == ({"no label names the query": 40} if asked else {})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("q0\t999\t1", "the document is not in the corpus"),
        ("q999\td0\t1", "the query is unknown"),
        ("q0\td1\tinf", "the relevance is no number"),
        ("q0\td1\t", "the relevance is no number"),
        ("q0\td1\t0.5", "the relevance is no whole number"),
    ],
)
def test_one_bad_label_is_set_aside(folder, row, reason):
    folder.qrels["train"].append(row)
    found = load_collection(folder.write())
    assert reasons(found) == {reason: 1} and len(found.qrels) == 40
    entry = found.quarantine.iloc[0]
    assert (entry["kind"], entry["line"]) == ("qrel", 26) and entry["file"].endswith("train.tsv")


def test_many_bad_labels_are_fatal_unless_allowed(folder):
    folder.qrels["train"] += ["q0\td9\tx", "q1\td9\tx"]
    with pytest.raises(AnmiError, match=r"2 of 42 qrels.*train.tsv line 26.*max_quarantine"):
        load_collection(folder.write())
    found = load_collection(folder.write(), max_quarantine=0.05)
    assert reasons(found) == {"the relevance is no number": 2}
    folder.qrels["train"].pop()
    with pytest.raises(AnmiError, match="1 of 41 qrels"):
        load_collection(folder.write(), max_quarantine=0)


def test_labels_of_absent_documents_count_as_trec_eval_counts_them(folder):
    of_test = [f"q{i}\td{i}\t2" for i in range(34, 40)]
    folder.qrels["test"] = [*of_test, "q32\tgone\t1", "q34\tgone\t3.0", "q35\tx\t0"]
    folder.qrels["train"] += [f"q{i}\tgone\t1" for i in (*range(10), 33)]
    folder.qrels["train"] += ["q0\td0\t0", "q1\td2\t0"]
    found = load_collection(folder.write())
    assert reasons(found) == {
        "the document is not in the corpus": 14,
        "another label of the pair is higher": 1,
        "no relevant document of the query is in the corpus": 1,
    }
    assert "at most 0.786, since 25% of" in found.notes["absent from test"]
    assert "absent from dev" not in found.notes
    test = found.qrels[found.qrels.split == "test"]
    assert set(found.qrels.document_id[found.qrels.split == "train"]) <= {*found.corpus.document_id}
    assert found.judged.values.tolist() == [["q1", "d2"]], "of two labels the higher one stands"
    assert found.notes["judged"] == "1 labels below 1 are judged negatives"
    written = {f"q{i}": {f"d{i}": 2} for i in range(34, 40)} | {"q32": {"gone": 1}}
    written["q34"]["gone"] = 3
    run = {query: {f"d{i}": 1 / i for i in range(30, 40)} for query in written}
    expected = pytrec_eval.RelevanceEvaluator(written, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    rows = [(query, *pair) for query, found in run.items() for pair in found.items()]
    scores = evaluate(test, pd.DataFrame(rows, columns=["query_id", "document_id", "score"]))
    for name, of_trec in (("ndcg@10", "ndcg_cut_10"), ("recall@100", "recall_100")):
        assert scores[name].to_dict() == {q: expected[q][of_trec] for q in written}
    assert scores["recall@100"].mean() == pytest.approx(0.786, abs=0.001), "the ceiling is reached"


@pytest.mark.parametrize("level", [1, 2, 3])
def test_labels_below_the_first_relevant_grade_are_judged_as_trec_eval_judges_them(folder, level):
    grades = {"d0": 1, "d1": 2, "d2": 3, "d3": 0, "d4": -1, "d5": -2}
    folder.qrels["test"] = [f"q39\t{name}\t{grade}" for name, grade in grades.items()]
    folder.qrels["train"] += ["q0\td0\t3", "q0\td9\t-2"]
    found = load_collection(folder.write(), relevant_from=level)
    labels = found.qrels[found.qrels.query_id == "q39"]
    assert labels.relevance.tolist() == [1, 2, 3][level - 1 :], "the gain stays graded"
    assert set(found.judged.document_id[found.judged.query_id == "q0"]) >= {"d9"}
    assert found.notes["judged"].startswith(f"{len(found.judged)} labels below {level} are")
    run = {name: 1 / rank for rank, name in enumerate(["d5", "d0", "d9", "d1", "d2", "d4"], 1)}
    table = pd.DataFrame({"query_id": "q39", "document_id": list(run), "score": run.values()})
    of_trec = pytrec_eval.RelevanceEvaluator(
        {"q39": grades}, {"P.5", "recall.5", "map_cut.5", "success.1"}, relevance_level=level
    )
    scores = evaluate(labels, table, ks=(1, 5)).loc["q39"]
    names = ["precision@5", "map@5", "recall@5", "accuracy@1"]
    expected = of_trec.evaluate({"q39": run})["q39"]
    assert scores[names].tolist() == pytest.approx([expected[name] for name in sorted(expected)])


def test_a_split_without_labels_above_0_and_an_empty_dev_stop_nothing(folder):
    folder.qrels["train"] = [row.replace("\t1", "\t0") for row in folder.qrels["train"]]
    folder.qrels["dev"] = []
    found = load_collection(folder.write())
    assert reasons(found) == {
        "no label of the query is of a relevant grade": 24,
        "no label names the query": 8,
    }
    assert found.notes["labels"] == "none for training"
    assert found.notes["dev.tsv"] == "is empty, as if it were not there"
    assert found.queries.split.unique().tolist() == ["test"]


def test_empty_texts_are_set_aside_with_what_hangs_on_them(folder):
    folder.documents[5].update(title=" ", text=" \t")
    folder.documents[6]["text"] = ""
    folder.queries[0]["text"] = ""
    found = load_collection(folder.write(), max_quarantine=0.05)
    assert sorted(reasons(found).values()) == [1] * 5
    assert {"title and text are empty", "the text is empty"} < reasons(found).keys()
    # A title without a text is a document.
    assert "d6" in set(found.corpus["document_id"])
    assert not {"q0", "q5"} & set(found.queries["query_id"])
    assert set(found.qrels["document_id"]) <= set(found.corpus["document_id"])


def test_queries_that_differ_in_a_sign_stay_apart_in_one_split(folder):
    names = [f"sort {row['text'].split()[1]} {row['_id']} in C" for row in folder.queries]
    for place, row in enumerate(folder.queries):
        row["text"] = names[place // 2] + "#" * (place % 2)
    folder.qrels = {"train": [label for labels in folder.qrels.values() for label in labels]}
    found = load_collection(folder.write())
    split = found.queries.set_index("text")["split"]
    assert len(split) == 40 and len(set(split)) > 1 and len(found.quarantine) == 0
    assert all(split[name] == split[f"{name}#"] for name in names[:20])


def test_texts_of_held_out_queries_leave_train(folder):
    folder.queries[0]["text"] = "WHICH  amber has number 32?"
    folder.queries[1]["text"] = folder.queries[24]["text"]
    folder.queries[25]["text"] = folder.queries[33]["text"]
    folder.queries[2]["text"] = "<p>Which <b>cedar</b> has number&nbsp;34?</p>"
    folder.queries[3]["text"] = f"the {folder.queries[35]['text']}"
    folder.queries[4]["text"] = folder.queries[36]["text"].replace("e", "е")
    folder.queries[5]["text"] = f"not {folder.queries[37]['text']}"
    found = load_collection(folder.write(), language="en")
    assert reasons(found) == {
        "a train query with the text of a test query": 2,
        "a train query with the text of a dev query": 1,
        "a dev query with the text of a test query": 1,
    }
    assert found.queries["split"].value_counts().to_dict() == {"train": 21, "dev": 7, "test": 8}
    assert ': 2, the first of them "q3"; they stay' in found.notes["near_copies"]


def test_half_a_surrogate_pair_does_not_break_storage(folder, tmp_path):
    folder.documents[2] = r'{"_id": "d2", "text": "broken \ud83d emoji"}'
    found = load_collection(folder.write())
    found.corpus.to_parquet(tmp_path / "corpus.parquet")
    assert found.corpus["text"][2] == "broken � emoji"


def test_a_run_of_trec_is_a_system_by_the_name_of_its_file(folder):
    place = folder.path / "runs" / "splade.trec"
    collection = folder.write()
    place.parent.mkdir()
    place.write_text(
        "q39 Q0 d39 1 7.5 splade\nq39\tQ0\td3\t2\t-1e1\tsplade\nq39 Q0 elsewhere 3 -11 splade\n"
    )
    rows = [("q39", "d39", 7.5, "splade.trec"), ("q39", "d3", -10.0, "splade.trec")]
    assert list(load_collection(collection).runs.itertuples(index=False, name=None)) == rows
    for text, words in (
        ("q39 Q0 d39 1 7.5 a\n\nq39 Q0 d38 2", 'line 3 is "q39 Q0 d38 2"; six columns'),
        ("q39 Q0 d39 1 nan a", r"line 1 is .*score \(a number\)"),
        ("39 Q0 39 1 7.5 a", "runs/splade.trec ranks no document of this corpus"),
    ):
        place.write_text(text)
        with pytest.raises(AnmiError, match=words):
            load_collection(collection)


TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
PLAIN = st.one_of(TEXT, st.lists(TEXT, max_size=2))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ODD = PLAIN | NUMBERS | st.none() | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(TEXT, st.one_of(ODD, st.dictionaries(TEXT, PLAIN, max_size=2)), max_size=3))
def test_metadata_are_kept_as_they_were_written(tmp_path_factory, metadata):
    path = tmp_path_factory.mktemp("beir") / "corpus.jsonl"
    path.write_text(json.dumps({"_id": "d", "text": "fox", "metadata": metadata}), encoding="utf-8")
    kept = read_texts(path, "document", {})["metadata"].tolist()
    assert kept == [json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))]


QUERIES = "q1 What is a fox? | q2 an owl | a0 what is a FOX | d1 x | d2 X! | t1 y | t2 Y"
LABELS = """
q1 fox 1 train | q1 vixen 1 train | q2 owl 1 train | a0 vixen 2 train | a0 fur 1 train
d1 one 1 dev | d2 two 1 dev | t1 three 1 test | t2 four 1 test
"""


def read(equivalent: bool = False) -> Collection:
    """The collection of these queries and labels (query, document, relevance, split)."""
    labels = [row.split() for row in LABELS.strip().replace("\n", " | ").split(" | ")]
    qrels = pd.DataFrame(labels, columns=["query_id", "document_id", "relevance", "split"])
    documents = pd.DataFrame({"document_id": sorted({*qrels.document_id})})
    queries = [row.split(" ", 1) for row in QUERIES.split(" | ")]
    origin = {"metadata": "{}", "file": "made", "line": 1}
    raw = RawCollection(
        documents.assign(title="", text=documents.document_id, **origin),
        pd.DataFrame(queries, columns=["query_id", "text"]).assign(**origin),
        qrels.assign(file="made", line=1),
        same_text_is_equivalent=equivalent,
    )
    return assemble("made", raw, Options(language="en"))


def labels_of(found: Collection, query: str) -> dict[str, int]:
    rows = found.qrels[found.qrels.query_id == query]
    assert not rows.document_id.duplicated().any()
    return dict(zip(rows.document_id, rows.relevance, strict=True))


def test_queries_of_one_text_become_one_with_all_their_labels() -> None:
    found = read()
    # The first stays, and test as it is.
    assert found.queries.query_id.tolist() == ["q1", "q2", "d1", "t1", "t2"]
    assert labels_of(found, "q1") == {"fox": 1, "vixen": 2, "fur": 1}, "the higher of two labels"
    assert labels_of(found, "d1") == {"one": 1, "two": 1}
    assert (labels_of(found, "t1"), labels_of(found, "t2")) == ({"three": 1}, {"four": 1})
    assert found.qrels.set_index("query_id").split["q1"].eq("train").all()
    last_words = found.quarantine.set_index("id").reason.str.split().str[-1].to_dict()
    assert last_words == {"a0": '"q1"', "d2": '"d1"'}
    assert [*counts_by_reason(found.quarantine).values()] == [2], "one reason, whatever the id"


def test_where_equal_texts_are_the_known_truth_they_stay_apart() -> None:
    found = read(equivalent=True)
    assert len(found.queries) == 7
    assert {("q1", "fur"), ("a0", "fox")} <= set(map(tuple, found.equivalents.values.tolist()))
