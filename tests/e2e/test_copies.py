"""A collection with texts that come twice: no copy, and no query itself, is a negative anywhere on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anmi.corpus.duplicates import normalised
from anmi.training.batch import assemble, read_rows

pytestmark = pytest.mark.slow
THINGS = [
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "lagoon"),
    *("marsh", "north", "oasis", "prairie", "quarry", "ridge", "steppe", "tundra", "upland", "valley", "willow", "yew"),
]
EACH = len(THINGS)


def write(folder: Path) -> Path:
    """24 arguments, their answers, and the answers once more in capitals; the arguments are the queries."""
    pairs = list(zip(THINGS, [*THINGS[1:], THINGS[0]], strict=True))
    arguments = [f"The {a} is better than the {b}, as all agree." for a, b in pairs]
    answers = [f"No: the {a} is worse than the {b} for most of us." for a, b in pairs]
    texts = {f"argument{i}": text for i, text in enumerate(arguments)}
    queries = {f"argument{i}": text.removesuffix(".") for i, text in enumerate(arguments)}
    # The last argument is also asked under another id, with the copy for an answer.
    queries["again"] = arguments[-1].upper()
    texts |= {f"answer{i}": text for i, text in enumerate(answers)}
    texts |= {f"copy{i}": text.upper() for i, text in enumerate(answers)}
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", texts), ("queries", queries)):
        rows = [json.dumps({"_id": identifier, "text": text}) for identifier, text in lines.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    # Each second query has the copy for its answer, so the answers of others are copies of what they may be asked.
    labels = {f"argument{i}": f"{'copy' if i % 2 else 'answer'}{i}" for i in range(EACH)} | {"again": "copy5"}
    splits = {"test": ["argument0", "argument1"], "dev": ["argument2", "argument3"]}
    splits["train"] = [name for name in labels if name not in (*splits["test"], *splits["dev"])]
    for split, names in splits.items():
        rows = ["query-id\tcorpus-id\tscore", *(f"{name}\t{labels[name]}\t1" for name in names)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_what_has_the_text_of_a_positive_or_of_the_query_is_never_a_negative(
    new_place: Any, in_process: Any, tmp_path: Path
) -> None:
    place = new_place(tmp_path)
    parameters = f"collection=beir:{write(tmp_path / 'texts')},recipe=naive_top,encoder=static"
    done = in_process(place, "run", "--pipelines", "mining", "--params", parameters)
    assert done.exit_code == 0, (done.output, done.exception)
    corpus = place.table("ingestion", "corpus.parquet")
    form = {name: normalised(text) for name, text in zip(corpus.document_id, corpus.text, strict=True)}
    rows = place.table("selection", "training_rows.parquet")
    assert "again" not in set(rows.query_id), "it became one with the last argument"
    known = {
        query: {form[name] for name in names} for query, names in zip(rows.query_id, rows.positive_ids, strict=True)
    }
    assert len(known[f"argument{EACH - 1}"]) == 2
    for row in rows.itertuples():
        wrong = known[row.query_id] | {normalised(row.query)}
        assert len(row.negative_ids) >= 7
        assert not wrong & {form[name] for name in row.negative_ids}
    # All rows in one batch, where the arguments are negatives of each other, too.
    read = read_rows(rows)
    batch = assemble(read, "all")
    assert any(name.startswith("argument") for name in batch.ids)
    for line, weights in zip(read, batch.weights, strict=True):
        wrong = known[line.query_id] | {normalised(line.query)}
        assert not wrong & {form[name] for name, weight in zip(batch.ids, weights, strict=True) if weight > 0}
    told = in_process(place, "anmi", "explain", "again")
    assert told.exit_code == 1
    assert f'the query of the same text "argument{EACH - 1}"' in told.output + str(told.stderr)
