"""Keeping the cross-encoders of an earlier run, so that only new pairs have to be judged.

A judgment is stored under the weights that made it. Those that are trained anew on nearly the same queries judge
nearly the same, and everything has to be judged again for it. A query keeps its fold whatever else is there, so
cross-encoders that are kept have not seen the new queries of the fold that they judge either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from anmi.fingerprint import hash_text
from anmi.judging.cross_encoder import OF_TRAINING, CrossEncoderOptions, normalised

_SAMPLE: Final = 512


@dataclass(frozen=True)
class Fitted:
    """What cross-encoders were trained for.

    Attributes
    ----------
    collection
        Name of the collection.
    settings
        Hash of seed and options.
    sample
        The smallest 512 hashes of the query texts, in order: enough to tell how many of other texts are new.
    """

    collection: str
    settings: str
    sample: list[str]

    @staticmethod
    def to(collection: str, options: CrossEncoderOptions, seed: int, texts: Iterable[str]) -> Fitted:
        """Describe a training on the queries of these texts."""
        names = {*OF_TRAINING, "folds", "negatives"}
        settings = json.dumps([seed, options.model_dump(mode="json", include=names)], sort_keys=True)
        return Fitted(
            collection, hash_text(settings, 8), sorted({hash_text(normalised(text), 8) for text in texts})[:_SAMPLE]
        )

    def new_share(self, other: Fitted) -> float:
        """Estimate which share of the queries of another description are not among these, in [0, 1].

        Both samples hold all hashes up to the smaller of their largest ones, so below it they compare exactly.

        Examples
        --------
        >>> Fitted("", "", ["1", "2", "3"]).new_share(Fitted("", "", ["2", "3", "4"]))
        0.3333333333333333
        """
        ends = [each.sample[-1] for each in (self, other) if len(each.sample) == _SAMPLE]
        last = min(ends, default="~")
        known, asked = ({text for text in each.sample if text <= last} for each in (self, other))
        return len(asked - known) / len(asked) if asked else 0.0


def kept(
    earlier: Mapping[str, Any], now: Fitted, options: CrossEncoderOptions, models: Path, most_new: float
) -> tuple[list[str], str]:
    """Return the fingerprints of the cross-encoders to keep, one per fold; or none, and why they cannot be kept.

    Parameters
    ----------
    earlier
        What an earlier run noted of its cross-encoders; empty where there was none.
    now
        What cross-encoders would be trained for now.
    options
        How they would be.
    models
        Folder where trained cross-encoders lie.
    most_new
        Share of new queries, in [0, 1], from which on they are trained anew.
    """
    if not earlier.get("fitted"):
        return [], "no earlier run trained any"
    before = Fitted(**earlier["fitted"])
    names = [str(fold["fingerprint"]) for fold in earlier["folds"]]
    new = before.new_share(now)
    reasons = {
        f"those of the last run are for {before.collection}": before.collection != now.collection,
        "seed or options are others": before.settings != now.settings or len(names) != options.folds,
        "a cascade confirms what they say": options.confirm is not None,
        f"about {new:.0%} of the queries are new": new > most_new,
        f"their files are not in {models}": not all((models / f"teacher-{name}").is_dir() for name in names),
    }
    reason = next((text for text, true in reasons.items() if true), "")
    return ([], reason) if reason else (names, "")


def noted(fitted: Fitted) -> dict[str, Any]:
    """Return what a later run has to know, for JSON."""
    return asdict(fitted)
