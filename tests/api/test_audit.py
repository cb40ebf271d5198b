"""Negatives of others are read in their formats, judged, and written again without doubtful ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset, load_from_disk

from anmi import audit_negatives
from anmi.api.examples import read_corpus, read_examples
from anmi.errors import AnmiError

# The second negative says what the positive says.
TOPICS = ["copper", "iron", "silver", "gold", "zinc", "lead", "nickel", "cobalt", "chrome", "tin"]
OF = [
    {
        "query": f"melting point of {topic}",
        "positive": f"The melting point of {topic} was measured in a furnace by heating it slowly.",
        "negative": f"Mines of {topic} are found in many countries and employ thousands of people.",
        "false": f"In a furnace the melting point of {topic} was measured by slowly heating it.",
    }
    for topic in TOPICS
]


def passages(*texts: str) -> list[dict[str, str]]:
    return [{"docid": text[:9], "title": "", "text": text} for text in texts]


def as_json(layout: str, row: dict[str, str]) -> dict[str, Any]:
    query, positive = row["query"], row["positive"]
    negatives = [row["negative"], row["false"]]
    if layout == "FlagEmbedding":
        scores = {"neg_scores": [0.1, 0.9], "prompt": "Find it."}
        return {"query": query, "pos": [positive], "neg": negatives, **scores}
    if layout == "Tevatron":
        texts = {"positive_passages": passages(positive), "negative_passages": passages(*negatives)}
        return {"query_id": query, "query": query, **texts}
    if layout == "DPR":
        hard = {
            "hard_negative_ctxs": passages(negatives[0]),
            "negative_ctxs": passages(negatives[1]),
        }
        return {"question": query, "answers": [], "positive_ctxs": passages(positive), **hard}
    ids = {"pos_doc": [{"id": positive[-9:]}], "neg_doc": [{"id": text[-9:]} for text in negatives]}
    return {"question_id": query, "question": query, **ids}


def write(path: Path, layout: str) -> Path:
    records = [as_json(layout, row) for row in OF]
    whole: Any = {"corpus": [{"path": "corpus"}], "data": records} if layout == "NeMo" else records
    if layout in ("DPR", "NeMo"):
        path.write_text(json.dumps(whole), encoding="utf-8")
    else:
        path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return path


@pytest.mark.parametrize("layout", ["FlagEmbedding", "Tevatron", "DPR", "NeMo"])
def test_files_are_read_and_written_again_as_they_were(tmp_path: Path, layout: str) -> None:
    path = write(tmp_path / "negatives.json", layout)
    texts = {row[name][-9:]: row[name] for row in OF for name in ("positive", "negative", "false")}
    # Endings of texts are the same for all topics, so ids are of the first.
    texts = {text[-9:]: text for text in OF[0].values()} if layout == "NeMo" else {}
    examples = read_examples(path, texts)
    record = examples.records[0]
    assert examples.query(record) == OF[0]["query"]
    assert examples.positives(record) == [OF[0]["positive"]]
    texts_of_negatives = [negative.text for negative in examples.negatives(record)]
    assert texts_of_negatives == [OF[0]["negative"], OF[0]["false"]]
    examples.save(examples.without([[False, True]] * len(OF)), tmp_path / "cleaned.json")
    cleaned = read_examples(tmp_path / "cleaned.json", texts)
    assert [n.text for n in cleaned.negatives(cleaned.records[0])] == [OF[0]["negative"]]
    assert cleaned.frame.get("corpus") == ([{"path": "corpus"}] if layout == "NeMo" else None)
    assert cleaned.records[0].get("neg_scores", [0.1]) == [0.1]


def datasets_of(layout: str) -> Dataset:
    table = pd.DataFrame(OF)
    if layout == "triplet":
        falses = table.assign(negative=table["false"])
        return Dataset.from_pandas(pd.concat([table, falses])[["query", "positive", "negative"]])
    if layout == "n-tuple":
        columns = {"negative": "negative_1", "false": "negative_2"}
        return Dataset.from_pandas(table.rename(columns=columns))
    pairs = [(row["query"], row[name]) for row in OF for name in ("positive", "negative", "false")]
    if layout == "labeled-pair":
        laid = pd.DataFrame(pairs, columns=["query", "passage"]).assign(label=[1, 0, 0] * len(OF))
        return Dataset.from_pandas(laid)
    lists = {"passages": [[row[n] for n in ("positive", "negative", "false")] for row in OF]}
    return Dataset.from_dict({"query": table["query"], **lists, "labels": [[1, 0, 0]] * len(OF)})


@pytest.mark.parametrize("layout", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
def test_a_negative_that_says_what_the_positive_says_is_found(
    tmp_path: Path, static_models: Path, layout: str
) -> None:
    audit = audit_negatives(datasets_of(layout), store=static_models.parent, verbose=False)
    assert (audit.queries, audit.negatives, audit.positives) == (len(OF), 2 * len(OF), 0)
    assert audit.expected is not None and audit.expected["basis"] == "other collections"
    doubtful = [doubt["negative"] for doubt in audit.doubtful[: len(OF)]]
    assert sorted(doubtful) == sorted(row["false"] for row in OF)
    assert audit.doubtful[0]["probability"] > 5 * audit.doubtful[len(OF)]["probability"]
    assert "of a known positive" in audit.doubtful[0]["reason"]
    bound = audit.doubtful[len(OF) - 1]["probability"]
    cleaned = audit.dataset(threshold=bound)
    if layout == "n-tuple":
        assert len(cleaned) == 0
        return
    audit.save(tmp_path / "cleaned", threshold=bound)
    again = audit_negatives(load_from_disk(tmp_path / "cleaned"), store=static_models.parent)
    assert again.negatives == len(OF)
    weights = [weight for record in audit.cleaned(weights=True) for weight in record["weights"]]
    assert len(weights) == 2 * len(OF) and min(weights) < 1 - bound + 1e-6


def test_positives_among_negatives_and_texts_outside_the_corpus_are_counted(
    static_models: Path,
) -> None:
    table = pd.DataFrame(OF)
    # Each query's positive is its negative, too, and the corpus has none of the others.
    negatives = pd.concat([table, table.assign(negative=table["positive"])])
    dataset = Dataset.from_pandas(negatives[["query", "positive", "negative"]])
    audit = audit_negatives(
        dataset, corpus=table["positive"], store=static_models.parent, verbose=False
    )
    assert (audit.positives, audit.outside) == (len(OF), len(OF))
    assert audit.expected is not None and audit.expected["total"] == len(OF)
    assert f"{len(OF)} are known positives of their query" in str(audit)
    assert [record["negative"] for record in audit.cleaned(2.0)] == negatives["negative"].tolist()
    assert not {*table["positive"]} & {record["negative"] for record in audit.cleaned(1.0)}


def test_negatives_that_are_all_positives_are_all_taken_out(static_models: Path) -> None:
    table = pd.DataFrame(OF).assign(negative=lambda rows: rows["positive"])
    dataset = Dataset.from_pandas(table[["query", "positive", "negative"]])
    audit = audit_negatives(dataset, store=static_models.parent, verbose=False)
    assert (audit.positives, audit.expected, audit.cleaned()) == (len(OF), None, [])
    assert "nothing can be said" in str(audit)


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"query": "a", "pos": ["b"]}', "the fields query, pos, .*neg"),
        ('{"query": "a", "pos": ["b"], "neg": ["c"]}\n{"query', "line 2 is no JSON"),
        ('{"query": "a", "pos": ["b"], "neg": ["c"]}\n[]', "line 2 is '\\[\\]'"),
        ('{"query": 1, "pos": ["b"], "neg": ["c"]}', "the query 1"),
        ('{"query": "a", "pos": ["b"], "neg": [7]}', "the passage 7"),
        ('{"query": "a", "pos": ["b"], "neg": [{"docid": "x"}]}', "the document 'x' without"),
        ('{"query": "a", "pos": ["b"], "neg": []}', "has no negatives"),
        ("[]", "has no examples"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "negatives.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AnmiError, match=message):
        audit_negatives(path, store=tmp_path)


def test_a_file_is_text_in_utf_8(tmp_path: Path) -> None:
    (tmp_path / "negatives.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(AnmiError, match="is no text in UTF-8"):
        audit_negatives(tmp_path / "negatives.jsonl", store=tmp_path)


def test_a_corpus_is_texts_or_a_file_with_or_without_ids(tmp_path: Path) -> None:
    lines = ['{"_id": "d1", "title": "A", "text": "b"}', '{"text": "c"}']
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read_corpus(tmp_path / "corpus.jsonl") == {"d1": "A b", "1": "c"}
    assert read_corpus(["x"]) == {"0": "x"} and read_corpus(None) == {}
    with pytest.raises(AnmiError, match="is not there"):
        read_corpus(tmp_path / "none.jsonl")
