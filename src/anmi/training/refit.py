"""Training twice: a first pass in which dev chooses the epochs, and a second one that trains on dev as well."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
from sentence_transformers import SentenceTransformer

from anmi.errors import AnmiError
from anmi.training.checkpoint import CheckpointPlan, Checkpoints, identity, read_manifest
from anmi.training.mixed import Stock
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import PseudoRows
from anmi.training.recorder import DEV_METRIC, DevLoss, Refit
from anmi.training.refreshed import Documents
from anmi.training.trainer import TrainingResult, train

log = logging.getLogger(__name__)
# Under which a checkpoint of a second pass names the folder of its first.
_AFTER: Final = "refit after"
_OUTCOME: Final = "outcome.json"


@dataclass(frozen=True)
class _Outcome:
    """What the first pass came to; its weights are not needed any more."""

    log: pd.DataFrame
    summary: dict[str, Any]
    dev_run: pd.DataFrame

    def second_pass(self, *, keep_best: bool) -> Refit:
        """Return the pass that follows: as long as the weights that the first would have kept were trained."""
        measured = self.log[DEV_METRIC].dropna()
        best = self.summary["best_epoch"] if keep_best else None
        return Refit(best or self.summary["epochs"], tuple(measured.tolist()), self.summary["trained_share"])

    def write(self, folder: Path) -> None:
        """Write it aside, and make it appear when it is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{_OUTCOME}-{os.getpid()}"
        tables = {"log": self.log.to_dict("list"), "dev_run": self.dev_run.to_dict("list")}
        aside.write_text(json.dumps({**tables, "summary": self.summary}), encoding="utf-8")
        aside.rename(folder / _OUTCOME)

    @staticmethod
    def read(folder: Path) -> _Outcome | None:
        """Return what lies in a folder; None where nothing does, or nothing whole."""
        try:
            found = json.loads((folder / _OUTCOME).read_text(encoding="utf-8"))
            return _Outcome(pd.DataFrame(found["log"]), found["summary"], pd.DataFrame(found["dev_run"]))
        except (OSError, ValueError, KeyError):
            return None


def train_twice(
    rows: pd.DataFrame,
    dev_rows: pd.DataFrame,
    *,
    load: Callable[[], SentenceTransformer],
    options: TrainingOptions,
    output: Path,
    evaluate_dev: Callable[[SentenceTransformer], float] | None,
    seed: int,
    checkpoints: CheckpointPlan,
    stock: Stock | Documents | None = None,
    dev_loss: DevLoss | None = None,
    pseudo: PseudoRows | None = None,
    rank_dev: Callable[[SentenceTransformer], pd.DataFrame] | None = None,
    show_progress: bool = True,
) -> TrainingResult:
    """Train on ``rows``, and then from the same start on ``dev_rows`` as well for the epochs that dev chose.

    A training that was stopped goes on in the pass where it was, and gives the same weights on a CPU.

    Parameters
    ----------
    rows, dev_rows
        See :func:`anmi.training.trainer.train`.
    load
        Returns the encoder as it is before training, a new one in every call.
    checkpoints
        Where those of both passes are kept, and what the first came to until the second is finished.
    options, output, evaluate_dev, seed, stock, dev_loss, pseudo, show_progress
        See :func:`anmi.training.trainer.train`.
    rank_dev
        Returns a model's run of the dev queries; called after the first pass, which did not train on them.

    Returns
    -------
    TrainingResult
        Model and summary are those of the second pass; the summary holds that of the first, and with it all dev
        figures, as ``first_pass``; the run of the dev queries is the first pass's. In the log ``pass`` tells the rows
        of both apart.

    Raises
    ------
    AnmiError
        As :func:`anmi.training.trainer.train`; or a checkpoint of a second pass is given whose first is not known.
    """
    given = checkpoints.start
    after = None if given is None else read_manifest(given)["identity"]["facts"].get(_AFTER)
    common: dict[str, Any] = {"options": options, "seed": seed, "stock": stock, "show_progress": show_progress}
    common["pseudo"] = pseudo
    encoder = load()
    if after is None:
        folder = Checkpoints(checkpoints, identity(rows, encoder, options, seed, checkpoints.facts), 1).folder
        first = _Outcome.read(folder) if checkpoints.resume else None
    else:
        folder = checkpoints.folder / after
        first = _Outcome.read(folder)
        if first is None:
            raise AnmiError(
                f"The checkpoint {given} is of a second pass, and what its first pass came to is not in {folder} any "
                "more: leave `training.checkpoint` out to train from the beginning."
            )
    if first is None:
        done = train(
            rows,
            encoder=encoder,
            output=None,
            evaluate_dev=evaluate_dev,
            checkpoints=checkpoints,
            dev_loss=dev_loss,
            **common,
        )
        ranked = pd.DataFrame() if rank_dev is None else rank_dev(done.model)
        first = _Outcome(done.log, done.summary, ranked)
        try:
            first.write(folder)
        except OSError as error:
            # Hours of work are not to be lost because the disk is full.
            log.warning("A second pass that is killed will begin with the first again: %s", error)
        # Memory of a model that nobody asks any more.
        del done
        encoder = load()
    else:
        log.info("Going on after the first pass, which is finished; training.resume=false would start anew")
    refit = first.second_pass(keep_best=options.keep_best)
    log.info("Training again with %d rows of dev queries for %d epochs", len(dev_rows), refit.epochs)
    plan = replace(
        checkpoints,
        start=None if after is None else given,
        facts={**checkpoints.facts, _AFTER: folder.name, "refit epochs": str(refit.epochs)},
    )
    both = pd.concat([rows, dev_rows], ignore_index=True)
    second = train(both, encoder=encoder, output=output, checkpoints=plan, refit=refit, **common)
    shutil.rmtree(folder, ignore_errors=True)
    parts = [part.assign(**{"pass": number}) for number, part in enumerate((first.log, second.log), start=1)]
    return replace(
        second,
        log=pd.concat(parts, ignore_index=True),
        summary=second.summary | {"first_pass": first.summary},
        dev_run=first.dev_run,
    )
