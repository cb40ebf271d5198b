"""The predictor of hardness learns before the encoder does."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from anmi import seeds
from anmi.retrieval.encoders import encode
from anmi.training.batch import Row
from anmi.training.options.hardness import HansOptions

log = logging.getLogger(__name__)
_BATCH = 64


def pretrain(
    predictor: nn.Module, encoder: SentenceTransformer, rows: Sequence[Row], options: HansOptions, seed: int
) -> tuple[float, float]:
    """Train the predictor alone towards the heuristic hardness of the queries, on embeddings of the untrained encoder.

    Every distinct query counts once in a pass, whatever its number of rows; the loss is the squared error, that of the
    joint training. Draws from no global generator.

    Parameters
    ----------
    predictor
        Trained in place, on the encoder's device.
    encoder
        Encodes the queries once and is left as it is.
    rows
        With their hardness.
    options
        Passes and learning rate.
    seed
        Of the training; orders the queries.

    Returns
    -------
    before, after
        Mean squared error over the queries.
    """
    known = {row.query: row.hardness for row in rows}
    queries = torch.from_numpy(encode(encoder, list(known), role="query", precision="float32")).to(encoder.device)
    target = torch.tensor(list(known.values()), dtype=torch.float32, device=encoder.device)

    def error(at: Tensor) -> Tensor:
        return (predictor(queries[at]) - target[at]).square().mean()

    everything = torch.arange(len(target), device=encoder.device)
    optimizer = torch.optim.AdamW(predictor.parameters(), lr=options.learning_rate, weight_decay=0.0)
    with torch.no_grad():
        before = float(error(everything))
    for passed in range(options.pretrain):
        order = seeds.stream(seed, f"training/pretraining/{passed}").permutation(len(target))
        for part in np.split(order, np.arange(_BATCH, len(order), _BATCH)):
            optimizer.zero_grad()
            error(torch.from_numpy(part).to(encoder.device)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        after = float(error(everything))
    log.info("The predictor of hardness was trained first: squared error %.4f before, %.4f after", before, after)
    return before, after
