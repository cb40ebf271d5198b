"""The nodes that make the search and let all systems rank, by labels and by pseudo-queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.pipelines.tables import corpus_of, frame, labels_of

from anmi.adaptation.pseudo_tests import with_pseudo_tests
from anmi.corpus.texts import document_texts
from anmi.evaluation.retrieval import ranked
from anmi.pipelines.evaluation.nodes import describe_hardness, score_runs
from anmi.pipelines.evaluation.search import (
    fit_search,
    make_parts,
    measure_dimensions,
    rank_by_parts,
    run_systems,
)
from anmi.pipelines.params import DenseParams, EvaluationParams, SearchParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder, load_encoder
from anmi.retrieval.terms import Terms
from anmi.search import HybridSearch
from anmi.serve.run import Run as page_run
from anmi.store import Store

COUNT = 60
WORDS = [f"w{i}" for i in range(40)]
INFO = {"collection": "mine", "language": "en"}
DENSE = DenseParams(precision="float32")
SYSTEMS = ["bm25", "zero_shot", "mine", "hybrid"]
GIVEN = pd.DataFrame(
    {"query_id": "q2", "document_id": ["d3", "d2"], "score": [1.0, 2.0], "system": "splade.trec"}
)


def tables() -> dict[str, Any]:
    """Every document has a title of its own; a third each of the queries is train, dev and test."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(COUNT)]
    corpus = corpus_of(texts)
    corpus["title"] = [f"own{i} {text.split()[4]}" for i, text in enumerate(texts)]
    rows = ((f"q{i}", " ".join(text.split()[:2])) for i, text in enumerate(texts))
    queries = frame("query_id text", *rows, metadata="{}", same_as="")
    queries["split"] = ["train", "dev", "test"] * (COUNT // 3)
    qrels = labels_of(*(f"q{i} d{i}" for i in range(COUNT)), split=queries.split)
    pseudo = corpus.rename(columns={"title": "text", "text": "positive_text"})
    pseudo = pseudo.drop(columns="metadata").assign(kind="title", weight=1.0)
    pseudo["query_id"] = "title:0:" + corpus.document_id
    pseudo["split"] = ["dev"] * 10 + ["test"] * 10 + ["train"] * (COUNT - 20)
    return {"corpus": corpus, "queries": queries, "qrels": qrels, "pseudo_queries": pseudo}


@pytest.fixture(scope="module")
def models(word_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "trained")):
        words = [*WORDS, *(f"own{i}" for i in range(COUNT))]
        model = word_encoder(words, dimension=64, seed=seed)
        model.save(str(folder / name), create_model_card=False)
    return str(folder / "base"), folder / "trained"


def cut_tables() -> dict[str, Any]:
    """A cut collection: one long document of 20 passages, others of one to three, some copies."""
    cut = tables()
    corpus = cut["corpus"]
    names = ["long"] * 20 + [f"doc{row // 3}" for row in range(20, 40)]
    names += corpus.document_id[40:].tolist()
    corpus["parent"] = names
    copies = corpus.iloc[40:45].assign(document_id=[f"copy{row}" for row in range(5)])
    copies["parent"] = copies.document_id
    corpus["copy_of"] = corpus.parent
    copies["copy_of"] = corpus.parent[40:45]
    # Copies stand before what they are copies of, and are found first where scores are equal.
    cut["corpus"] = pd.concat([copies, corpus], ignore_index=True)
    return cut


class Run:
    """What the nodes made of a collection."""

    def __init__(
        self,
        models: tuple[str, Path],
        folder: Path,
        labelled: bool,
        dense: DenseParams,
        deep: Any = "cutoffs",
        collection: dict[str, Any] | None = None,
        unchanged: str | None = None,
        **search: Any,
    ) -> None:
        self.params = EvaluationParams(cutoffs=(10, 20), resamples=100, ranked=deep)
        self.tables = collection or tables()
        self.trained = models[1]
        if not labelled:
            for name in ("queries", "qrels"):
                self.tables[name] = self.tables[name][:0]
        self.terms = Terms.cut(document_texts(self.tables["corpus"]), "en", "whitespace")
        kind = "labels" if labelled else "pseudo_queries"
        summary = {"dev_queries": kind, "unchanged": unchanged}
        dev: dict[str, Any] = {**self.tables, "seed": 1, "training_summary": summary}
        params = SearchParams(**{"parts": ["bm25", "trained"]} | search)
        of_corpus = "corpus" in params.parts
        (folder / "none").mkdir(parents=True)
        with Store(folder / "store") as store:
            self.parts = make_parts(
                **dev,
                trained_model=models[1],
                corpus_encoder=Path(models[0]) if of_corpus else folder / "none",
                bm25_index=BM25Index.of_terms(self.terms),
                encoder="corpus" if of_corpus else models[0],
                search=params,
                dense=dense,
                store=store,
            )
            runs = rank_by_parts(
                **dev, search_parts=self.parts, terms=self.terms, params=self.params
            )
        self.dev_part_runs = runs["dev_part_runs"]
        self.search = fit_search(
            **dev,
            search_parts=self.parts,
            dev_part_runs=self.dev_part_runs,
            info=INFO,
            recipe="mine",
            search=params,
            dense=dense,
        )
        self.runs = run_systems(
            part_runs=runs["part_runs"],
            measured_search=self.search,
            **self.tables,
            given_runs=GIVEN,
            recipe="mine",
            params=self.params,
        )


@pytest.fixture(scope="module", params=[True, False], ids=["labels", "pseudo-queries"])
def run(request: Any, models: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(models, tmp_path_factory.mktemp("store"), request.param, DENSE)


def test_all_systems_answer_the_same_queries(run: Run) -> None:
    labelled = len(run.tables["queries"]) > 0
    systems = [*SYSTEMS, *["splade.trec"] * labelled]
    assert run.runs.system.unique().tolist() == systems
    asked = {system: set(rows.query_id) for system, rows in run.runs.groupby("system")}
    expected = {f"title:0:d{i}" for i in range(10, 20)}
    if labelled:
        expected = {f"q{i}" for i in range(2, COUNT, 3)}
    assert asked["hybrid"] == asked["mine"] == asked["zero_shot"] == expected
    table = score_runs(run.runs, **run.tables, params=run.params)
    assert len(table) == len(expected) * len(systems) and set(table.system) == set(systems)
    given = table[(table.system == "splade.trec") & (table["rank"] == 1)]
    # Its queries are in the run, and the others found nothing.
    assert given.query_id.tolist() == ["q2"] * labelled
    asked_tables = (run.tables["queries"], run.tables["pseudo_queries"])
    hardness = describe_hardness(table, *asked_tables, run.params)
    assert {row["system"] for row in hardness["profile"]} == set(systems)


def test_fewer_dimensions_search_as_they_are_measured_saved_and_read_elsewhere(
    models: tuple[str, Path], run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def by_dimensions(run: Run) -> dict[str, float]:
        summary = {"options": {"dimensions": [64, 16]}}
        return measure_dimensions(
            search_parts=run.parts,
            terms=run.terms,
            **run.tables,
            training_summary=summary,
            params=run.params,
        )

    def mean_of(run: Run) -> float:
        scores = score_runs(run.runs, **run.tables, params=run.params)
        return scores[scores.system == "mine"]["ndcg@10"].mean()

    labelled = len(run.tables["queries"]) > 0
    cut = Run(models, tmp_path / "store", labelled, DENSE.model_copy(update={"dimensions": 16}))
    measured = by_dimensions(run)
    assert measured == pytest.approx({"64": mean_of(run), "16": mean_of(cut)})
    assert measured["64"] != measured["16"]
    assert by_dimensions(cut) == pytest.approx({"16": measured["16"]})
    search = HybridSearch.build([cut.parts.parts["dense"]], cut.tables["corpus"])
    search.save(tmp_path / "search")
    loaded = HybridSearch.load(tmp_path / "search")
    assert loaded.parts["dense"].index.settings["dimensions"] == 16
    assert loaded.search("w1 w2", 5) == search.search("w1 w2", 5)
    code = (tmp_path / "search" / "README.md").read_text().split("```python\n")[2].split("```")[0]
    exec(code, {"FOLDER": str(tmp_path / "search"), "QUESTION": "w1 w2"})
    best = loaded.search("w1 w2", 1)[0][0]
    assert best.document_id in capsys.readouterr().out.splitlines()[1]


def test_what_a_pseudo_query_is_made_of_is_taken_out_for_all_systems(run: Run) -> None:
    if len(run.tables["queries"]):
        pytest.skip("labels need no stand-in")
    vectors = load_encoder(str(run.trained), Path())
    corpus, queries, qrels, pseudo = run.tables.values()
    changed, asked, truth = with_pseudo_tests(corpus, queries, qrels, pseudo, ["test"])
    expected = ranked(Encoder.of(vectors, DENSE), asked[asked.split == "test"], truth, changed, 20)
    mine = run.runs[run.runs.system == "mine"]
    np.testing.assert_allclose(mine.score, expected.score, atol=1e-5)
    index = BM25Index.build(document_texts(changed), "en", "whitespace")
    documents, scores = index.search(asked[asked.split == "test"].text.tolist(), 20)
    np.testing.assert_allclose(
        run.runs[run.runs.system == "bm25"].score, scores[documents >= 0], rtol=1e-6
    )


def test_the_search_itself_has_the_true_corpus_and_says_what_its_weight_rests_on(run: Run) -> None:
    hit, *_ = run.search.search("own3", 1, "bm25")[0]
    assert (hit.document_id, hit.title) == ("d3", tables()["corpus"].title[3])
    fit, labelled = run.search.settings["fit"], len(run.tables["queries"]) > 0
    assert fit["queries"] == (20 if labelled else 0), "pseudo-queries choose no weights"
    weights = {name: weight for name, weight in fit["weights"].items() if weight}
    assert weights == run.search.settings["weights"] and list(run.search.parts) == list(weights)
    assert 0 <= fit["low"]["dense"] <= fit["high"]["dense"] <= 1
    assert set(fit["ndcg@10"]) == ({"bm25", "dense", "hybrid"} if labelled else set())
    assert labelled or fit["weights"] == {"bm25": 0.7, "dense": 0.3}


def test_a_part_that_finds_nothing_is_measured_as_0(
    models: tuple[str, Path], tmp_path: Path
) -> None:
    collection = tables()
    is_test = collection["queries"].split == "test"
    collection["queries"].loc[is_test, "text"] = "inconnu"
    run = Run(models, tmp_path, True, DENSE, collection=collection)
    assert "bm25" not in set(run.runs.system)
    table = score_runs(run.runs, **run.tables, params=run.params, recipe="mine")
    assert (table["ndcg@10"][table.system == "bm25"] == 0).all()
    assert set(table.system) == {*SYSTEMS, "splade.trec"}


@pytest.mark.parametrize("unchanged", ["the start was better", None])
def test_what_training_left_unchanged_is_one_part(
    unchanged: str | None, models: tuple[str, Path], tmp_path: Path
) -> None:
    parts = ["bm25", "corpus", "trained"]
    run = Run(models, tmp_path, True, DENSE, unchanged=unchanged, parts=parts)
    weights = run.search.settings["fit"]["weights"]
    assert [*weights] == ["bm25", *(["dense"] if unchanged is None else []), "corpus"]


def test_weights_by_hand_are_those_of_parts_that_training_left_unchanged(
    models: tuple[str, Path], tmp_path: Path
) -> None:
    weights = {"bm25": 0.4, "corpus": 0.6}
    changes: dict[str, Any] = {"unchanged": "the start was better", "weights": weights}
    run = Run(models, tmp_path, True, DENSE, parts=["bm25", "corpus", "trained"], **changes)
    assert run.search.settings["weights"] == weights


@pytest.mark.parametrize("collection", [tables, cut_tables], ids=["whole", "cut"])
@pytest.mark.parametrize("depth", [5, 100])
def test_what_is_measured_is_what_is_deployed(
    collection: Any, depth: int, models: tuple[str, Path], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"depth": depth, "weights": {"bm25": 0.4, "trained": 0.6}}
    run = Run(models, tmp_path / "store", True, DENSE, "cutoffs", collection(), **settings)
    run.search.save(tmp_path / "folder")
    deployed = HybridSearch.load(tmp_path / "folder")
    questions = run.tables["queries"].set_index("query_id").text
    page = page_run("", "", run.tables["corpus"], run.tables["queries"], None, search=deployed)
    for system, name in (("bm25", "bm25"), ("dense", "mine"), ("hybrid", "hybrid")):
        rows = run.runs[run.runs.system == name]
        for query_id, measured in rows.groupby("query_id", sort=False):
            hits = deployed.search(questions[query_id], 20, system)[0]
            assert measured.document_id.tolist() == [hit.document_id for hit in hits]
            np.testing.assert_allclose(measured.score, [hit.score for hit in hits], atol=1e-5)
            shown = page.hits(questions[query_id], 20)[system]
            assert [hit.document_id for hit in shown] == [hit.document_id for hit in hits]
    # What a part says of a hit of the hybrid is what the part says by itself.
    for question in questions[:10]:
        ranks = {hit.document_id: hit.rank for hit in deployed.search(question, depth, "bm25")[0]}
        hits = deployed.search(question, 10)[0]
        assert {hit.document_id: hit.ranks["bm25"] for hit in hits} == {
            hit.document_id: ranks.get(hit.document_id) for hit in hits
        }


def test_documents_of_one_text_are_one_hit(models: tuple[str, Path], tmp_path: Path) -> None:
    run = Run(models, tmp_path, True, DENSE, collection=cut_tables())
    question = run.tables["corpus"].title[0]
    for system in ("bm25", "dense", "hybrid"):
        hits = run.search.search(question, 30, system)[0]
        assert (hits[0].document_id, hits[0].copies) == ("d40", ("copy0",))
        assert not [hit for hit in hits if hit.document_id.startswith("copy")]


def test_systems_are_measured_by_exact_search_whatever_is_deployed(
    models: tuple[str, Path], tmp_path: Path
) -> None:
    weights = {"bm25": 0.75, "trained": 0.25}
    made = Run(models, tmp_path, True, DENSE.model_copy(update={"index": "hnsw"}), weights=weights)
    exact: Any = made.parts.parts["dense"].index
    assert made.search.parts["dense"].index.settings["kind"] == "hnsw"
    assert exact.settings["kind"] == "flat"
    vectors = load_encoder(str(models[1]), tmp_path).encode_document(
        document_texts(tables()["corpus"]), normalize_embeddings=True
    )
    np.testing.assert_allclose(exact.vectors(), vectors, atol=1e-5)
    assert (
        made.search.settings["weights"] == {"bm25": 0.75, "dense": 0.25}
        and made.search.settings["fit"] is None
    )


def test_weights_are_fitted_no_deeper_than_trained_parts_ranked_dev_queries(
    models: tuple[str, Path], tmp_path: Path
) -> None:
    fits = []
    for depth in (100, 1000):
        collection = tables()
        corpus = collection["corpus"]
        further = [corpus.assign(document_id=name + corpus.document_id) for name in ("a", "b")]
        collection["corpus"] = pd.concat([corpus, *further], ignore_index=True)
        folder = tmp_path / str(depth)
        run = Run(models, folder, True, DENSE, collection=collection, depth=depth)
        assert run.dev_part_runs.groupby("part")["rank"].max().max() == 100 < 3 * COUNT
        fits.append(run.search.settings["fit"])
    assert fits[0] == fits[1]


def test_the_whole_corpus_is_ranked_when_asked_so_that_every_rank_is_known(
    models: tuple[str, Path], tmp_path: Path
) -> None:
    made = Run(models, tmp_path, True, DENSE, "all")
    corpus, queries, qrels, _ = made.tables.values()
    assert len(corpus) > 20, "more than the largest cut-off"
    found = made.runs[made.runs.system == "mine"]
    assert (found.groupby("query_id").document_id.nunique() == len(corpus)).all()
    table = score_runs(made.runs, **made.tables, params=made.params)
    ranks = table[table.system == "mine"].set_index("query_id")["rank"]
    model = load_encoder(str(models[1]), tmp_path)
    documents = model.encode_document(document_texts(corpus), normalize_embeddings=True)
    texts = queries.set_index("query_id").text
    relevant = qrels.groupby("query_id").document_id.first()
    for query in ranks.index:
        scores = documents @ model.encode_query([texts[query]], normalize_embeddings=True)[0]
        own = scores[corpus.document_id.tolist().index(relevant[query])]
        assert (scores > own + 1e-5).sum() < ranks[query] <= (scores >= own - 1e-5).sum()
