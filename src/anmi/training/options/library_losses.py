"""Which losses of sentence-transformers can be fed from training rows, and how; light to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anmi.errors import nearest

FED_WITH: Final = {
    "MultipleNegativesRankingLoss": "columns",
    "MultipleNegativesSymmetricRankingLoss": "columns",
    "GlobalOrthogonalRegularizationLoss": "columns",
    "MegaBatchMarginLoss": "pairs",
    "TripletLoss": "triplets",
    "MarginMSELoss": "margins",
    "DistillKLDivLoss": "scores",
    "CosineSimilarityLoss": "rated_pairs",
    "CoSENTLoss": "rated_pairs",
    "AnglELoss": "rated_pairs",
    "ContrastiveLoss": "rated_pairs",
    "OnlineContrastiveLoss": "rated_pairs",
    "BatchAllTripletLoss": "classes",
    "BatchHardTripletLoss": "classes",
    "BatchHardSoftMarginTripletLoss": "classes",
    "BatchSemiHardTripletLoss": "classes",
}
LEARNS_SCORES: Final = ("margins", "scores")
_WRAPPERS: Final = ("MatryoshkaLoss",)
# Take all documents of the batch that are not the row's own positive as negatives, and cannot be told otherwise.
WHOLE_BATCH: Final = frozenset(
    name
    for name, fed in FED_WITH.items()
    if fed in ("pairs", "classes") or name.startswith("MultipleNegatives")
)  # fmt: skip
_ONLY_GUIDED: Final = "it compares with a second model, its guide; select the negatives by a judge instead"
_LAYERS: Final = "it trains layers of the encoder, and embeddings are all that is at hand here"
REFUSED: Final = {
    "AdaptiveLayerLoss": _LAYERS,
    "Matryoshka2dLoss": f"{_LAYERS}; MatryoshkaLoss needs no more than them",
    "GISTEmbedLoss": _ONLY_GUIDED,
    "CachedGISTEmbedLoss": _ONLY_GUIDED,
    "ContrastiveTensionLoss": "it needs a copy of the encoder and single sentences",
    "ContrastiveTensionLossInBatchNegatives": "it learns single sentences, not queries and documents",
    "DenoisingAutoEncoderLoss": "it needs a decoder and damaged sentences",
    "EmbedDistillLoss": "it learns the embeddings of a teacher, which training rows do not hold",
    "MSELoss": "it learns the embeddings of a teacher, which training rows do not hold",
    "SoftmaxLoss": "it learns classes of sentence pairs",
}


def inner_name(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the name of the loss that sees the embeddings, which MatryoshkaLoss is given as an argument.

    Examples
    --------
    >>> inner_name("MatryoshkaLoss", {"loss": "CoSENTLoss"}), inner_name("TripletLoss", {})
    ('CoSENTLoss', 'TripletLoss')
    """
    return str(arguments.get("loss", "MultipleNegativesRankingLoss")) if name in _WRAPPERS else name


def check_library_name(name: str) -> str:
    """Return ``name`` if it is a loss that can be fed.

    Raises
    ------
    ValueError
        It is not; says what to do.

    Examples
    --------
    >>> check_library_name("CachedMultipleNegativesRankingLoss")
    Traceback (most recent call last):
    ...
    ValueError: CachedMultipleNegativesRankingLoss is not for use here: gradients are cached with any loss by ...
    """
    if name in FED_WITH or name in _WRAPPERS:
        return name
    if name.startswith("Cached") and name.removeprefix("Cached") in FED_WITH:
        raise ValueError(
            f"{name} is not for use here: gradients are cached with any loss by `recompute: true` (the default), so "
            f"name {name.removeprefix('Cached')} and set `texts_per_pass` for its mini_batch_size"
        )
    if name in REFUSED:
        raise ValueError(f"{name} cannot be used here: {REFUSED[name]}")
    raise ValueError(
        f'sentence-transformers has no loss "{name}" to use here; {nearest(name, [*FED_WITH, *_WRAPPERS])}'
    )
