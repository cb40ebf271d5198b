"""Losses on similarities: ``loss(positive [B], documents [B, N], log_weights [B, N], facts) -> [B]``.

Plain ``nn.Module`` objects that know neither encoders nor batches; see :mod:`anmi.training.batch` for how the columns
and weights of a batch come about. A document that is no negative of a row has a log-weight of -inf there; so has the
row's own positive, which is a column like any other.

A loss has a ``temperature`` and, optionally,

- ``columns``: names of the judgments in :class:`~anmi.training.facts.Facts` it cannot do without,
- ``report()``: numbers for the log of the training, by name.
"""

from anmi.training.facts import NOTHING_KNOWN, Facts
from anmi.training.losses.build import build_loss
from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.infonce import WeightedInfoNCE

__all__ = ["NOTHING_KNOWN", "DebiasedContrastive", "Facts", "WeightedInfoNCE", "build_loss"]
