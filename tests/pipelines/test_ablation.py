"""Sets of an ablation, and what makes a cell another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
import yaml
from pydantic import ValidationError

from anmi.errors import AnmiError
from anmi.hooks.checks import check_ablation
from anmi.pipelines.ablation.cells import CellJob, Place, SelectionJob, buckets, measure, read
from anmi.pipelines.ablation.mining import book_of, fingerprint
from anmi.pipelines.ablation.params import AblationParams
from anmi.pipelines.ablation.schedule import Plan
from anmi.pipelines.adaptation.params import AdaptationParams
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.ingestion.params import IngestionParams
from anmi.pipelines.training.params import TrainingParams
from anmi.selection.recipe import RecipeBook, recipe_book

ROOT = Path(__file__).parents[2]
RAW: dict[str, Any] = {
    "set": "one",
    "collections": {"docs": {"collection": "api_docs"}},
    "sets": {"one": {"description": "One.", "recipes": ["plain", "judged"], "collections": ["docs"],
                     "baseline": "plain"}},
}  # fmt: skip
RECIPES: dict[str, Any] = {
    "plain": {"description": "Top.", "steps": [{"top": {"by": "dense"}}], "training": {"epochs": 2}},
    "judged": {"description": "Clean.", "steps": [{"denoise": {"threshold": 0.1}}, {"top": {"by": "dense"}}]},
}


def params(**one: Any) -> dict[str, Any]:
    return RAW | {"sets": {"one": RAW["sets"]["one"] | one}}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (RAW | {"set": "onne"}, 'there is no set "onne": did you mean "one"'),
        (
            params(collections=["dogs"]),
            'set "one" names the collection "dogs", which is not below: did you mean "docs"',
        ),
        (params(baseline="plane"), 'baseline "plane" is none of its recipes; did you mean "plain"'),
        (params(focus="judge"), 'focus "judge" is none of its recipes; did you mean "judged"'),
        (params(ours=["clean"]), 'ours[0] "clean" is none'),
        (params(seeds=[1, 1]), '"1" stands twice'),
        (params(split="dev", refit=True), "a refit trains on the dev queries, which are to be measured"),
        (RAW | {"collections": {"docs": {"collection": "api_docs", "ingestion": {"max_query": 1}}}}, "max_queries"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AblationParams.model_validate(wrong)
    assert message in caught.value.errors()[0]["msg"]


def test_what_a_set_names_is_looked_up_before_anything_runs(tmp_path: Path) -> None:
    book = recipe_book(RECIPES)
    check_ablation(AblationParams.model_validate(RAW), book, ROOT)
    misspelt = AblationParams.model_validate(params(recipes=["plain", "juged"]))
    with pytest.raises(AnmiError, match=r'set "one": there is no recipe "juged": did you mean "judged"'):
        check_ablation(misspelt, book, ROOT)
    absent = AblationParams.model_validate(RAW | {"collections": {"docs": {"collection": f"beir:{tmp_path}/x"}}})
    with pytest.raises(AnmiError, match=r'nothing at beir:.*/x, which is its collection "docs"'):
        check_ablation(absent, book, ROOT)
    with pytest.raises(AnmiError, match=r'recipe "plain", .*epoch'):
        check_ablation(AblationParams.model_validate(params(training={"epoch": 3})), book, ROOT)


def test_the_sets_of_the_project_are_of_its_recipes() -> None:
    raw = yaml.safe_load((ROOT / "conf/base/parameters_ablation.yml").read_text(encoding="utf-8"))["ablation"]
    book = yaml.safe_load((ROOT / "conf/base/parameters_recipes.yml").read_text(encoding="utf-8"))["recipes"]
    for name in raw["sets"]:
        asked = AblationParams.model_validate(raw | {"set": name})
        asked.check_recipes(recipe_book(book).with_variants(asked.chosen.variants).names())
    headline = AblationParams.model_validate(raw | {"set": "headline"}).chosen
    assert len(headline.seeds) >= 3
    assert {"anmi_labels_only", "naive_top", "nv_retriever", "bm25_random"} <= set(headline.recipes)


def cell(recipes: dict[str, Any] = RECIPES, recipe: str = "plain", mined: str = "m", seed: int = 1,
         options: dict[str, Any] | None = None, dense: DenseParams | None = None,
         split: Literal["test", "dev"] = "test") -> CellJob:  # fmt: skip
    place = Place("docs", mined, ROOT / "conf", Path("work/mined-m"), Path("store"), "none", "none")
    training = TrainingParams(options=options or {})
    selection = SelectionJob(place, recipe, recipe_book(recipes), 1)
    return CellJob(selection, "static", training, dense or DenseParams(), seed, 0.1, split)


def test_only_what_changes_a_cell_makes_it_another_one() -> None:
    own = cell()
    other = RECIPES | {"judged": RECIPES["judged"] | {"negatives": 3}, "new": RECIPES["plain"]}
    same = [cell(other), cell({**RECIPES, "plain": RECIPES["plain"] | {"description": "Said otherwise."}})]
    assert {each.target for each in same} == {own.target}
    trained = cell(RECIPES | {"plain": RECIPES["plain"] | {"training": {"epochs": 3}}})
    assert trained.selection.target == own.selection.target
    chosen = cell(RECIPES | {"plain": RECIPES["plain"] | {"negatives": 3}})
    changed = [
        trained, chosen, cell(mined="n"), cell(seed=2), cell(options={"epochs": 3}), cell(recipe="judged"),
        cell(dense=DenseParams(max_length=64)),
    ]  # fmt: skip
    assert len({own.target, *(each.target for each in changed)}) == 1 + len(changed) - 1, "two ways to three epochs"
    assert chosen.selection.target != own.selection.target


def test_a_collection_is_mined_again_for_other_judges_only() -> None:
    book = recipe_book(RECIPES | {"judged_too": RECIPES["judged"] | {"negatives": 3}})

    def of(names: list[str], **changed: Any) -> str:
        parameters = {
            "collection": "api_docs",
            "ingestion": IngestionParams(),
            "bm25": BM25Params(),
            "seed": 1,
        } | changed
        return fingerprint(parameters, book_of(book, names), ROOT)

    assert of(["plain", "judged"]) == of(["judged_too"]) != of(["plain"])
    assert of(["plain"]) == of(["plain"], bm25=BM25Params(shard=7)) != of(["plain"], bm25=BM25Params(k1=2))
    assert of(["plain"]) != of(["plain"], seed=2)
    assert isinstance(book_of(book, ["plain"]), RecipeBook)


def test_a_half_written_cell_is_none(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    assert read(path) is None
    path.write_text('{"fingerprint": "x", "quer')
    assert read(path) is None


def test_completed_judgments_count_what_no_label_says() -> None:
    texts = ["Who, and where?", "what"]
    queries = pd.DataFrame({"query_id": ["q1", "q2"], "text": texts, "split": "test"})
    qrels = pd.DataFrame({
        "query_id": ["q1", "q2", "t"], "document_id": ["own", "old", "old"], "relevance": 1,
        "split": ["test", "test", "train"],
    })  # fmt: skip
    twin = pd.DataFrame({"query_id": ["q1"], "document_id": ["twin"]})
    # The twin of the answer stands first for q1; by the labels that is a mistake.
    run = pd.DataFrame(
        {"query_id": ["q1", "q1", "q2"], "document_id": ["twin", "own", "old"], "score": [2.0, 1.0, 1.0]}
    )
    found = measure(run, queries, qrels, {"equivalents": twin}, "equivalents")
    log3 = 1.584962500721156
    assert found["original"]["ndcg@10"] == pytest.approx([1 / log3, 1])
    assert found["completed"]["ndcg@10"] == pytest.approx([(1 + 2 / log3) / (2 + 1 / log3), 1])
    assert buckets(queries, qrels) == {"documents": ["unseen", "seen"], "hardness": ["hard", "easy"]}
    assert found["completed"]["documents"] == ["unseen", "seen"]
    assert set(measure(run, queries, qrels, {}, "none")) == {"original"}


def test_cells_have_one_pass_unless_the_ablation_asks_for_two() -> None:
    branches: dict[str, Any] = {
        "ingestion": IngestionParams(), "adaptation": AdaptationParams(), "denoising": DenoisingParams(),
        "dense": DenseParams(), "training": TrainingParams(),
    }  # fmt: skip
    book, targets = recipe_book(RECIPES), set()
    for refit in (False, True):
        asked = AblationParams.model_validate(RAW | ({"refit": True} if refit else {}))
        plan = Plan(asked, book, branches, 1, Path("work"), Path("store"), ROOT)
        job, place = plan.mining("docs", *plan.groups)
        cells = plan.cells(place, *plan.groups)
        assert {each.training.refit for each in cells} == {job.parameters["training.refit"]} == {refit}
        targets |= {each.target for each in cells}
    assert len(targets) == 2 * len(cells)


def test_recipes_that_state_settings_of_mining_are_mined_apart_under_what_is_set() -> None:
    names = AblationParams.model_validate(RAW).chosen.recipes
    # The last one states something; what is set for the run stays above it.
    raw = {**RECIPES, names[-1]: {**RECIPES[names[-1]], "mining": {"bm25": {"k1": 1.5, "b": 0.75}}}}
    branches: dict[str, Any] = {
        "ingestion": IngestionParams(), "adaptation": AdaptationParams(), "denoising": DenoisingParams(),
        "dense": DenseParams(), "training": TrainingParams(), "bm25": BM25Params(b=0.5),
    }  # fmt: skip
    plan = Plan(AblationParams.model_validate(RAW), recipe_book(raw), branches, 1, Path("work"), Path("store"), ROOT)
    assert plan.groups == [tuple(names[:-1]), (names[-1],)]
    made = [plan.mining("docs", group) for group in plan.groups]
    found = [(job.parameters["bm25"].k1, job.parameters["bm25"].b) for job, _ in made]
    assert found == [(BM25Params().k1, 0.5), (1.5, 0.5)]
    assert made[0][0].folder != made[1][0].folder
    cells = [plan.cells(place, group) for group, (_, place) in zip(plan.groups, made, strict=True)]
    assert {cell.recipe for cell in cells[1]} == {names[-1]} and names[-1] not in {cell.recipe for cell in cells[0]}
    assert sum(map(len, cells)) == len(names) * len(plan.params.chosen.seeds)


def test_a_set_says_itself_whether_it_refits_and_one_on_dev_never_does() -> None:
    def refits(ablation: bool, **one: Any) -> bool:
        return AblationParams.model_validate(params(**one) | {"refit": ablation}).refits

    assert [refits(True), refits(False), refits(False, refit=True), refits(True, refit=False)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert not refits(True, split="dev")


def test_cells_of_dev_are_others_than_those_of_test() -> None:
    assert cell(split="dev").target != cell().target


def test_what_a_refit_saw_is_seen() -> None:
    queries = pd.DataFrame({"query_id": ["a", "b", "c"], "text": "what", "split": "test"})
    qrels = pd.DataFrame({
        "query_id": ["a", "b", "c", "t", "d"], "document_id": ["one", "two", "new", "one", "two"], "relevance": 1,
        "split": ["test", "test", "test", "train", "dev"],
    })  # fmt: skip
    assert buckets(queries, qrels)["documents"] == ["seen", "unseen", "unseen"]
    assert buckets(queries, qrels, ["train", "dev"])["documents"] == ["seen", "seen", "unseen"]
    assert buckets(queries, qrels, held_out={"one", "two"})["documents"] == ["seen", "added", "unseen"]
