"""What the recipes named as published set, setting by setting, against what their texts say."""

from pathlib import Path
from typing import Any, Final

import pytest
import torch
import yaml
from tests.mined import recipe_book

from anmi.pipelines.params import (
    BM25Params,
    ConsistencyParams,
    DenoisingParams,
    DenseParams,
    EloParams,
)
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe
from anmi.training.loop import build_optimizer, training_arguments
from anmi.training.losses import build_loss

RECIPES: Final = recipe_book(
    yaml.safe_load(
        (Path(__file__).parents[2] / "conf/base/recipes.yml").read_text(encoding="utf-8")
    )["recipes"]
)
STAGES: Final = {
    "bm25": BM25Params(),
    "dense": DenseParams(),
    "consistency": ConsistencyParams(),
    "denoising": DenoisingParams(),
    "elo": EloParams(),
}
# Recipe, setting, value, where the text says so.
MINER: Final = [
    ("bm25.engine", "rank_bm25", "2. Install BM25 Library"),
    ("bm25.tokenizer", "whitespace", "3. tokenize, where NLTK is missing"),
    ("bm25.k1", 1.5, "3. build_bm25_index: the library's own"),
    ("bm25.b", 0.75, "3. build_bm25_index: the library's own"),
    ("bm25.epsilon", 0.25, "3. build_bm25_index: the library's own"), ("bm25.depth", 1000, "1. TOP_M"),
    ("consistency.top", 10, "1. TOP_K_FILTER"), ("negatives", 7, "1. NUM_NEGATIVES"),
    ("dense.positives", 1000, "6. each pair by itself"),
    (
        "steps", {"consistency": {"policy": "pairs"}, "source": {"source": "bm25"}, "random": {}},
        "3. mine_hard_negatives",
    ),
]  # fmt: skip
# Both texts train alike: 2.0 in section 5, train_anmi, and 2.1 in Integrated and Training Loop.
LOOP: Final = [
    ("training.curriculum.kind", "none", "not applied"), ("training.in_batch", "none", "the row's own negatives"),
    ("arguments.learning_rate", 2e-5, "AdamW"), ("rates", {2e-5}, "one optimiser for all"),
    ("arguments.max_grad_norm", 1.0, "clip_grad_norm_"), ("arguments.warmup_steps", 0, "no scheduler"),
    ("arguments.lr_scheduler_type", "constant_with_warmup", "no scheduler"),
    ("training.weight_decay", 0.01, "AdamW's own"), ("training.alpha", 1, "the last weights"),
]  # fmt: skip
ANMI_2_0: Final = [
    ("encoder", "minilm", "4. ANMIMiner"), ("bm25.engine", "rank_bm25", "4. ANMIMiner"),
    ("bm25.tokenizer", "whitespace", "4. ANMIMiner: lower().split()"),
    ("bm25.k1", 1.5, "4. ANMIMiner: the library's own"), ("bm25.b", 0.75, "4. ANMIMiner: the library's own"),
    ("bm25.epsilon", 0.25, "4. ANMIMiner: the library's own"), ("bm25.depth", 50, "4. num_candidates"),
    ("dense.depth", 0, "4. mine_for_query: candidates are BM25's"),
    ("dense.random", 0, "4. mine_for_query: candidates are BM25's"),
    ("dense.positives", 1, "4. mine_for_query: the first positive"), ("elo.judges", {"dense": 1}, "4. mine_for_query"),
    ("elo.depth", 50, "4. mine_for_query: all candidates, and the positive as a node"),
    ("elo.comparisons", 4, "3.1 comparison_degree"), ("elo.variant", "paraphrase", "3.1 _fit_thurstone"),
    ("elo.deviation", 1.0, "3.1 _fit_thurstone: Φ(eᵢ − eⱼ)"), ("elo.temperature", 0.2, "3.1 estimate: σ(5Δ)"),
    ("steps", {"elo_gap": {"danger": 100}, "zone_weight": {}, "top": {"by": "zone_preference"}}, "3.2"),
    ("negatives", 7, "4. num_negatives"), ("pool", None, "4. mine_dataset: tier 4 from the start"),
    ("training.loss.kind", "hybrid", "3.3"), ("training.loss.alpha", 0.6, "3.3 alpha"),
    ("training.loss.targets", "raw", "3.3 forward: mse_loss of Elo"),
    ("training.temperature", {"kind": "fixed", "value": 0.07}, "3.3 temperature"),
    ("training.batch_size", 8, "5. DataLoader"), ("training.epochs", 3, "5. train_anmi"),
    *LOOP,
]  # fmt: skip
ANMI_2_1: Final = [
    ("encoder", "minilm", "no network is named; that of 2.0"), ("bm25.depth", 50, "no number is named; that of 2.0"),
    ("denoising.depth", 50, "Integrated, stage 1: all candidates"), ("dense.positives", 1, "Integrated: the row's"),
    ("steps.denoise", {"column": "p_cross", "threshold": 0.5}, "Integrated, stage 1"),
    ("steps.max_ratio", {"column": "dense", "max_ratio": 0.95}, "Integrated, stage 2"),
    ("steps.mixture", {"column": "dense", "per": "query"}, "Integrated, stage 3"),
    ("steps.confidence", {"column": "p_cross"}, "Integrated, stage 4"),
    ("steps.min_weight", {"weight": 0.1}, "Integrated, stage 4: final_weight > 0.1"),
    ("steps.top", {"by": "weight"}, "Integrated, stage 4"),
    ("steps.elo_window", None, "Integrated, stage 4: the window is computed and not applied"),
    ("negatives", 10, "Integrated, num_negatives"),
    ("training.loss.kind", "debiased", "Integrated, method 3"),
    ("training.loss.form", "paraphrase", "Method 3, forward"),
    ("training.loss.tau_plus", 0.1, "Integrated, init_tau_plus"),
    ("training.loss.learned", True, "Integrated, LearnableDebiasedLoss"),
    ("training.loss.prior_strength", 0.0, "Method 3: a bare logit"),
    ("training.temperature", {"kind": "learnable", "initial": 0.07}, "Integrated, method 7"),
    ("training.epochs", 10, "Training Loop"),
    *LOOP,
]  # fmt: skip
# Its Minimal Viable Implementation.
MINIMAL: Final = [
    (
        "steps",
        {
            "duplicate_guard": {}, "denoise": {"column": "p_cross", "threshold": 0.5},
            "max_ratio": {"column": "dense", "max_ratio": 0.95}, "top": {"by": "dense"},
        },
        "methods 1 and 2",
    ),
    ("training.loss.form", "paraphrase", "method 3"), ("training.loss.tau_plus", 0.15, "method 3"),
    ("training.loss.learned", False, "method 3"),
]  # fmt: skip
HANS: Final = [
    ("encoder", "minilm", "7.2: a BERT, here a smaller one"),
    ("steps", {"source": {"source": "bm25"}, "top": {"by": "bm25"}}, "3.1: top-k from BM25"),
    ("training.encoders", "two", "7.2"),
    ("training.hardness.negatives", {"low": 1, "high": 3, "direction": "rising"}, "6.2"),
    ("training.hardness.weight", {"low": 0.5, "high": 1.5, "direction": "falling"}, "6.3, formula"),
    ("training.hardness.temperature", {"low": 0.5, "high": 1.0, "direction": "rising"}, "6.4, formula"),
    ("training.hardness.temperature_is", "absolute", "6.4: similarity / temperature"),
    ("training.temperature", {"kind": "fixed", "value": 1.0}, "2.3: the baseline's loss has none"),
    ("training.hardness.margin", {"low": 0.1, "high": 0.5, "direction": "falling"}, "6.5, formula"),
    ("training.hardness.margin_is", "added", "6.5"), ("training.hardness.margin_on", "similarity", "6.5"),
    ("training.hardness.detached", False, "5.1: jointly trained"), ("training.epochs", 1, "7.3"),
    ("training.batch_size", 16, "7.3"), ("arguments.learning_rate", 2e-6, "7.3"), ("rates", {2e-6}, "7.3"),
    ("arguments.warmup_steps", 100, "7.3"), ("training.max_length", 128, "7.3"),
    ("training.in_batch", "all", "3.1: in-batch and hard negatives"), ("training.alpha", 1, "7.3: one epoch"),
]  # fmt: skip
DNH: Final = [
    ("training.curriculum.kind", "linear", "3. Linear schedule"),
    ("training.curriculum.warm_up", 2.0, "3. E_warm"),
    ("training.sources.random", 0.0, "3. Linear schedule: p_random falls to 0"),
    ("training.sources.graph", pytest.approx(0.5 / 0.8), "3. p_mix without random"),
    ("training.sources.latent", pytest.approx(0.3 / 0.8), "3. p_mix without random"),
]
TRIGGERED: Final = [("training.sources.mix", (0.2, 0.5, 0.3, 0.0), "3. p_mix")]
TABLE: Final = {
    "bm25_random_as_published": MINER,
    "anmi_2_0_as_published": ANMI_2_0,
    "anmi_2_1_as_published": ANMI_2_1,
    "anmi_2_1_minimal": MINIMAL,
    "hans_as_published": HANS,
    "dnh_linear": DNH,
    "dnh_triggered": TRIGGERED,
}


def resolved(recipe: Recipe, encoder: Any) -> dict[str, Any]:
    """Return what a run resolves of a recipe: stages of mining, options and the library's arguments of training."""
    options = merged_options(recipe, TrainingParams())
    optimizer = build_optimizer(
        encoder, build_loss(options, 8), options, options.learning_rate or 1.0
    )
    return {name: recipe.settings(name, params) for name, params in STAGES.items()} | {
        "encoder": recipe.encoder,
        "negatives": recipe.negatives,
        "pool": recipe.pool,
        "training": options,
        "steps": {step.name: step.params.model_dump(exclude_unset=True) for step in recipe.steps},
        "arguments": training_arguments(options, encoder, 1, Path("unused"), 1_000),
        "rates": {group["lr"] for group in optimizer.param_groups},
    }


@pytest.fixture(scope="module")
def network() -> Any:
    """A network of one layer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense

    return SentenceTransformer(
        modules=[Dense(8, 8, activation_function=torch.nn.Identity())], device="cpu"
    )


@pytest.mark.parametrize(
    ("recipe", "setting", "value"),
    [
        pytest.param(recipe, *row[:2], id=f"{recipe}: {row[0]} ({row[2]})")
        for recipe, rows in TABLE.items()
        for row in rows
    ],
)
def test_a_recipe_sets_what_its_text_says(
    recipe: str, setting: str, value: Any, network: Any
) -> None:
    first, *rest = setting.split(".")
    found = resolved(RECIPES.get(recipe), network)[first]
    for name in rest:
        found = found.get(name) if isinstance(found, dict) else getattr(found, name)
    assert (found.model_dump() if hasattr(found, "model_dump") else found) == value


def test_every_recipe_as_published_has_its_table() -> None:
    assert {name for name in RECIPES.names() if name.endswith("_as_published")} <= TABLE.keys()
