"""Losses on similarities: ``loss(positive [B], documents [B, N], log_weights [B, N], facts) -> [B]``.

Plain ``nn.Module`` objects that know neither encoders nor batches; see :mod:`anmi.training.batch` for how the columns
and weights of a batch come about. A document that is no negative of a row has a log-weight of -inf there; so has the
row's own positive, which is a column like any other.

A loss has, optionally,

- ``temperature``: the module by whose value similarities are divided,
- ``columns``: names of the judgments in :class:`~anmi.training.facts.Facts` it cannot do without,
- ``uncertain``: how many documents of uncertain relevance a row is to bring at most,
- ``prepare(rows)``: called with all rows before the first step,
- ``report()``: numbers for the log of the training, by name.

Gradient caching, by which a batch of any size takes the memory of one pass, is no matter of the loss: see ``recompute``
of :class:`~anmi.training.objective.ContrastiveObjective`. To use a loss with sentence-transformers' own trainer see
:class:`ForSentenceTransformers`.
"""

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.build import build_loss
from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.distillation import Distillation
from anmi.training.losses.drawn import DrawnBySimAns
from anmi.training.losses.entity import EntityClassification
from anmi.training.losses.for_sentence_transformers import ForSentenceTransformers
from anmi.training.losses.hard_debiased import HardDebiasedContrastive
from anmi.training.losses.hybrid import Hybrid
from anmi.training.losses.infonce import WeightedInfoNCE
from anmi.training.losses.margin_mse import MarginMSE
from anmi.training.losses.pooled import PooledInfoNCE
from anmi.training.losses.tau_plus import TauPlus
from anmi.training.losses.triplet import Triplet

__all__ = [
    "NOTHING_KNOWN",
    "DebiasedContrastive",
    "Distillation",
    "DrawnBySimAns",
    "EntityClassification",
    "Facts",
    "ForSentenceTransformers",
    "HardDebiasedContrastive",
    "Hybrid",
    "MarginMSE",
    "PooledInfoNCE",
    "TauPlus",
    "Triplet",
    "WeightedInfoNCE",
    "build_loss",
]
