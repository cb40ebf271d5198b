"""Documents that adaptation must not see, to measure what a model does with documents that came after training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anmi.corpus.duplicates import normalised
from anmi.corpus.splits import position

STREAM = "adaptation/held out"


def splits(texts: Sequence[str], seed: int, share: float) -> NDArray[np.str_]:
    """Tell which documents are held out of adaptation, by a hash of their texts.

    Parameters
    ----------
    texts
        Of N documents. Documents whose texts are equal up to case and punctuation have one split.
    seed
        Keys the hash.
    share
        Expected share that is held out, in [0, 1]; half of it is ``dev``, half ``test``. Above 0 there is at least one
        document of each where there are three, or a folder of a dozen files could often not be measured.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every document, [N]. But for very few, it depends on no other document, so
        that one that is added to a corpus moves none of the others.

    Examples
    --------
    >>> splits(["a", "A."], seed=1, share=1.0).tolist() in (["dev", "dev"], ["test", "test"])
    True
    >>> sorted(splits(["a", "b", "c"], seed=1, share=0.001).tolist())
    ['dev', 'test', 'train']
    """
    place = position(seed, STREAM, [normalised(text) for text in texts])
    found = np.select([place < share / 2, place < share], ["dev", "test"], default="train")
    for name in ("test", "dev") if share > 0 else ():
        remaining = np.unique(place[found == "train"])
        if len(remaining) > 1 and name not in found:
            found[place == remaining[0]] = name
    return found
