"""Each format is read back by the program it is for, and trains one step where that is sentence-transformers."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset, load_dataset
from tests.judging.conftest import save_classifier

from anmi.selection.export import FORMATS, Collection, ExportOptions, make_export

WORDS = [f"w{number}" for number in range(40)]

SCORES = ["positive_p_relevant", "negative_p_relevant"]


def row(query: int, positive: int) -> list[Any]:
    negative_ids = [f"n{query + step}" for step in (1, 2, 3)]
    negatives = [f"w{query + step + 20} w{step}" for step in (1, 2, 3)]
    texts = [f"w{query} 질문", f"w{positive} w{query} größer", negatives]
    return [str(query), f"p{positive}", negative_ids, *texts, 0.875, [0.25, 0.125, 0.0625]]


# Eight queries of two positives each, so that grouping matters.
ROWS = pd.DataFrame(
    [row(query, positive) for query in range(8) for positive in (query, query + 10)],
    columns=["query_id", "positive_id", "negative_ids", "query", "positive", "negatives", *SCORES],
)


def written(name: str, folder: Path, **options: Any) -> Path:
    empty = Collection(
        pd.DataFrame({"document_id": ROWS.positive_id, "title": "", "metadata": ""}),
        pd.DataFrame({"query_id": ROWS.query_id, "metadata": ""}),
        "mine",
        "ko",
    )
    made = make_export(ROWS, name, ExportOptions(**options), empty)
    made.save(folder)
    return folder / FORMATS[name].files


def read(path: Path, kind: str = "parquet") -> Dataset:
    return load_dataset(
        kind, data_files=str(path), split="train", cache_dir=str(path.parent / "cache")
    )


@pytest.fixture(scope="module", autouse=True)
def _nothing_to_collect() -> Iterator[None]:
    """Every trainer ends with a full collection of garbage, which takes longer than its step."""
    import sentence_transformers  # noqa: F401

    gc.freeze()
    yield
    gc.unfreeze()


def trains_a_step(model: Any, dataset: Dataset, loss: Any, folder: Path) -> bool:
    """Run the library's own trainer for one step; say whether a weight of the model moved."""
    from sentence_transformers import CrossEncoder, CrossEncoderTrainer, SentenceTransformerTrainer
    from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
    from sentence_transformers.sentence_transformer import SentenceTransformerTrainingArguments

    cross = isinstance(model, CrossEncoder)
    arguments = CrossEncoderTrainingArguments if cross else SentenceTransformerTrainingArguments
    settings: dict[str, Any]
    settings = {"max_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 0.1}
    quiet: dict[str, Any] = {"report_to": "none", "save_strategy": "no", "use_cpu": True}
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer = (CrossEncoderTrainer if cross else SentenceTransformerTrainer)(
        model=model,
        args=arguments(str(folder / "run"), **settings, **quiet),
        train_dataset=dataset,
        loss=loss,
    )
    trainer.train()
    return any(
        (value.detach() - before[name]).abs().max() > 1e-6
        for name, value in model.named_parameters()
    )


@pytest.mark.parametrize(
    ("name", "options", "loss", "rows"),
    [
        ("n-tuple", {"negatives": 1}, "TripletLoss", 16),
        ("n-tuple", {}, "MultipleNegativesRankingLoss", 16),
        ("n-tuple-scores", {}, "MarginMSELoss", 16),
        ("n-tuple-scores", {}, "DistillKLDivLoss", 16),
        ("n-tuple-scores", {}, "cross MarginMSELoss", 16),
    ],
)
def test_an_encoder_or_a_cross_encoder_trains_a_step(
    name, options, loss, rows, word_encoder, tmp_path
):
    from sentence_transformers import CrossEncoder, cross_encoder, sentence_transformer

    cross, kind = loss.startswith("cross "), loss.removeprefix("cross ")
    module = cross_encoder if cross else sentence_transformer
    model = (
        CrossEncoder(str(save_classifier(tmp_path / "judge")), device="cpu")
        if cross
        else word_encoder(WORDS)
    )
    dataset = read(written(name, tmp_path, **options))
    assert len(dataset) == rows
    assert trains_a_step(model, dataset, getattr(module.losses, kind)(model), tmp_path)


def test_the_training_that_the_docs_show_runs_as_it_stands_there(
    word_encoder, tmp_path, monkeypatch
):
    (snippet,) = re.findall(
        r"```python\n(.*?)```", Path("docs/training.md").read_text(encoding="utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    written("n-tuple-scores", tmp_path / "tuples")
    word_encoder(WORDS).save("encoder")
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert len(names["rows"]) == 16 and (tmp_path / "trained" / "modules.json").is_file()
    assert not word_encoder(WORDS)[0].embedding.weight.equal(
        names["model"][0].embedding.weight.detach().cpu()
    )


@pytest.mark.parametrize(("name", "rows"), [("flagembedding", 8), ("tevatron", 8), ("pairs", 16)])
def test_json_lines_are_read_by_datasets(name: str, rows: int, tmp_path: Path) -> None:
    """FlagEmbedding and Tevatron read their files by ``load_dataset("json")`` as well."""
    dataset = read(written(name, tmp_path), "json")
    assert len(dataset) == rows and dataset[0]["query"] == "w0 질문"
    negatives = next(
        dataset[0][column]
        for column in ("neg", "negative_passages", "hard_negatives")
        if column in dataset[0]
    )
    assert len(negatives) == 3
