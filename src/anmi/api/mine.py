"""``mine_hard_negatives`` as that of sentence-transformers, with BM25, a judge and an account."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import yaml
from datasets import DatasetInfo
from pydantic import ValidationError

from anmi.api import collection
from anmi.api.collection import Collection, Vectors
from anmi.api.formats import FORMATS, Mined, Pairs, read_pairs
from anmi.candidates import OPEN, Candidates, CandidateShards, widened
from anmi.engine.progress import Progress
from anmi.errors import AnmiError, nearest
from anmi.evaluation.diagnostics import Expected, Funnel, Origins
from anmi.judging.expected import share_sentence
from anmi.ragged import Float32s, Int64s
from anmi.report.sentences import step_name
from anmi.selection.recipe import OF_CROSS_ENCODER, Recipe, RecipeBook, Runner, with_probabilities

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

# What stages measure that are not run here.
_UNMEASURED: Final = OF_CROSS_ENCODER | {"consistent", "positive_rank", "llm", "llm_shift", "facts"}
# From this probability of relevance on, a candidate is no negative, as in the recipe `anmi`.
_BARRED: Final = 0.1
# Pairs whose vectors are in memory at once.
_ROWS: Final = 65_536


@dataclass
class MiningInfo(DatasetInfo):  # type: ignore[misc]
    """What mining did, beside what ``datasets`` says of a dataset.

    Attributes
    ----------
    coverage
        Share of the queries that have all their negatives.
    sources
        How many negatives came from which retriever, such as ``bm25+dense``.
    false_negatives
        Share of the negatives that the judge expects to be relevant: ``share``, ``low``, ``high``
        (95 %), ``judged``, ``total``, ``basis`` and ``warning``; None without a judge.
    rejected
        How many candidates each rule took, and what was left.
    """

    coverage: float = 0.0
    sources: dict[str, int] = field(default_factory=dict)
    false_negatives: dict[str, Any] | None = None
    rejected: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Bounds:
    """Places and scores of candidates that may be negatives; arguments of the function."""

    range_min: int
    range_max: int | None
    max_score: float | None
    min_score: float | None
    absolute_margin: float | None
    relative_margin: float | None

    @property
    def on_scores(self) -> bool:
        """Whether any bound is on scores."""
        scores = (self.max_score, self.min_score, self.absolute_margin, self.relative_margin)
        return any(bound is not None for bound in scores)

    def check(self, negatives: int) -> None:
        """Refuse places that hold fewer candidates than there are to be negatives."""
        if self.range_min < 0:
            raise AnmiError(f"range_min is {self.range_min}: 0 or more was expected")
        if self.range_max is not None and self.range_max - self.range_min < negatives:
            raise AnmiError(
                f"places {self.range_min} to {self.range_max} hold fewer than"
                f" num_negatives={negatives} candidates: raise range_max, or lower range_min"
            )

    def with_last_place(self, negatives: int, positives: int) -> Bounds:
        """Return bounds with the last place that sentence-transformers looks at, where none is set.

        Parameters
        ----------
        negatives
            Of a query.
        positives
            Of the query with the most.
        """
        if self.range_max is not None:
            return self
        last = self.range_min + (10 if self.on_scores else 1) * negatives + positives
        return replace(self, range_max=last)


@dataclass(frozen=True)
class Rules:
    """Which candidates are too similar, or not similar enough, as sentence-transformers has it.

    Attributes
    ----------
    bounds
        On places and scores.
    score
        Column that they look at: ``dense``, or ``cross`` of a cross-encoder.
    lowest_positive
        Of each query the lowest score of its positives, float32 [Q].
    """

    bounds: Bounds
    score: str
    lowest_positive: Float32s

    def __call__(self, block: Candidates) -> Candidates:
        """Reject what the rules take, in their order."""
        bounds = self.bounds
        scores = block.columns[self.score]
        positive = self.lowest_positive[block.query_ids.astype(np.int64)][:, None]
        block = block.rejected("unscored", np.isnan(scores))
        if (margin := bounds.absolute_margin) is not None:
            is_close = scores + np.float32(margin) > positive
            block = block.rejected("absolute_margin", is_close, f"{margin}")
        if (margin := bounds.relative_margin) is not None:
            ceiling = positive - np.abs(positive) * np.float32(margin)
            block = block.rejected("relative_margin", scores > ceiling, f"{margin}")
        if (highest := bounds.max_score) is not None:
            block = block.rejected("max_score", scores > highest, f"{highest}")
        if (lowest := bounds.min_score) is not None:
            block = block.rejected("min_score", scores < lowest, f"{lowest}")
        place = _places(block, scores)
        block = block.rejected("range_min", place < bounds.range_min, f"{bounds.range_min}")
        if bounds.range_max is not None:
            block = block.rejected("range_max", place >= bounds.range_max, f"{bounds.range_max}")
        return block


def _places(block: Candidates, scores: Float32s) -> Any:
    """Return the place of each candidate among those of its query that are left, from 0."""
    left = np.where(block.undecided, scores, -np.inf)
    return np.argsort(np.lexsort((block.documents, -left)))


def mine_hard_negatives(
    dataset: Dataset,
    model: SentenceTransformer,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Iterable[str] | None = None,
    cross_encoder: CrossEncoder | None = None,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    num_negatives: int = 3,
    sampling_strategy: Literal["random", "top"] = "top",
    query_prompt_name: str | None = None,
    query_prompt: str | None = None,
    corpus_prompt_name: str | None = None,
    corpus_prompt: str | None = None,
    include_positives: bool = False,
    output_format: Literal["triplet", "n-tuple", "labeled-pair", "labeled-list"] = "triplet",
    output_scores: bool = False,
    batch_size: int = 32,
    faiss_batch_size: int = 16384,
    use_faiss: bool = False,
    use_multi_process: list[str] | bool = False,
    verbose: bool = True,
    cache_folder: str | None = None,
    as_triplets: bool | None = None,
    margin: float | None = None,
    *,
    judge: Literal["fused", "none"] = "fused",
    recipe: str | Mapping[str, Any] | None = None,
    qrels: Mapping[str, Iterable[str]] | None = None,
    store: str | Path | None = None,
    seed: int = 0,
) -> Dataset:
    """Mine hard negatives for pairs of a query and its positive, and leave out doubtful ones.

    Arguments, formats and names are those of ``sentence_transformers.util.mine_hard_negatives``,
    so its import can be exchanged for this one. Beyond it, candidates come from BM25, too, and a
    judge leaves out those that are likely to be relevant.

    Parameters
    ----------
    dataset
        Pairs, in columns of those names, or in the first two. Rows of one query are positives.
    model
        The encoder whose nearest documents are candidates.
    corpus
        Documents beside the positives.
    cross_encoder
        Scores the encoder's and BM25's first candidates in the place of the encoder, where a margin
        or a bound on scores is set.
    range_min, range_max
        Places of candidates, by score, that are passed over, and beyond which none is taken.
    max_score, min_score, absolute_margin, relative_margin
        Bounds on the score, and on its distance from the lowest score of the query's positives.
    num_negatives
        Of each query; with ``recipe`` in the place of the recipe's.
    include_positives
        Rank the positives among the negatives; for evaluation, and only without a judge.
    faiss_batch_size, use_faiss, use_multi_process
        Taken so that calls need no change: the search is exact, and uses all cores or the card.
    as_triplets, margin
        Former names: of the formats ``triplet`` and ``n-tuple``, and of ``absolute_margin``.
    judge
        ``fused`` weighs evidence of relevance; what is as likely as 0.1 is left out while there are
        other candidates. ``none``: what the rules leave.
    recipe
        Name of a recipe in ``conf/base/recipes.yml``, or a recipe as it stands there, which then
        chooses among what the rules leave.
    qrels
        Further relevant documents by query, which are no negatives.
    store
        Folder where vectors are kept from one call to the next; ``cache_folder`` says the same.
    seed
        Of all that is drawn.

    Returns
    -------
    datasets.Dataset
        In the format asked for; its ``info`` is a :class:`MiningInfo`.

    Raises
    ------
    AnmiError
        An argument or a column is wrong.
    """
    if as_triplets is not None:
        output_format = "triplet" if as_triplets else "n-tuple"
    if include_positives:
        output_format = "n-tuple"
    margin = margin if absolute_margin is None else absolute_margin
    bounds = Bounds(range_min, range_max, max_score, min_score, margin, relative_margin)
    _check(output_format, num_negatives, judge, sampling_strategy, include_positives)
    rescorer = cross_encoder if bounds.on_scores else None
    score = "dense" if rescorer is None else "cross"
    chosen = _recipe(recipe, num_negatives, sampling_strategy, judge, score)
    pairs = read_pairs(dataset, anchor_column_name, positive_column_name, corpus, qrels)
    most_positives = int(np.bincount(pairs.rows[:, 0]).max())
    if sampling_strategy == "random" or rescorer is not None:
        bounds = bounds.with_last_place(num_negatives, most_positives)
    bounds.check(num_negatives)
    reach = (bounds.range_max or 0) + most_positives
    place = store or cache_folder
    vectors = collection.text_vectors(
        model,
        pairs,
        place,
        {"prompt_name": query_prompt_name, "prompt": query_prompt, "batch_size": batch_size},
        {"prompt_name": corpus_prompt_name, "prompt": corpus_prompt, "batch_size": batch_size},
    )
    relevant = pairs.relevant[:0] if include_positives else pairs.relevant
    models = collection.cache_folder(place) / "models"
    texts = Collection(pairs.queries, pairs.documents, relevant, seed, models)
    rescore = None if rescorer is None else Rescore(rescorer, pairs, batch_size, reach)
    positive_scores = rescore.positive_scores() if rescore else _similarities(pairs, vectors)
    rules = Rules(bounds, score, _lowest(pairs, positive_scores))
    with tempfile.TemporaryDirectory(prefix="anmi-mining-") as folder:
        pool = Pool(texts, vectors, Path(folder), reach, judge == "fused")
        shards, summary = pool.judged(chosen, rescore)
        selection = Selection(Runner(chosen, seed), len(pairs.queries), score, summary)
        selection.run(shards.map(rules))
    info = selection.info()
    if verbose:
        print(info.description)
    mined = Mined(pairs, selection.negatives, selection.scores, positive_scores)
    return mined.dataset(output_format, output_scores, info)


@dataclass(frozen=True)
class Pool:
    """The candidates of a collection's queries.

    Attributes
    ----------
    texts, vectors
        Queries and documents.
    folder
        Where candidates are written.
    reach
        Rank down to which the encoder's candidates are needed at least.
    is_judged
        Whether the fused judge looks at them.
    """

    texts: Collection
    vectors: Vectors
    folder: Path
    reach: int
    is_judged: bool

    def judged(
        self, recipe: Recipe, rescore: Rescore | None
    ) -> tuple[CandidateShards, dict[str, Any]]:
        """Return candidates with all their scores, and the summary of the judge, if asked."""
        depths = {
            stage: max(recipe.mining.get(stage, {}).get("depth", collection.DEPTH), self.reach)
            for stage in ("bm25", "dense")
        }
        shards = self.texts.retrieve(
            self.vectors, self.folder / "candidates", depths, self.is_judged
        )
        if rescore is not None:
            shards = collection.write_shards(shards.map(rescore), self.folder / "rescored")
        if not self.is_judged:
            return shards, {}
        judge = self.texts.judge()
        judge.fit(shards)
        return collection.write_shards(
            judge.judged(shards), self.folder / "judged"
        ), judge.fused.summary


def _check(
    output_format: str, negatives: int, judge: str, sampling: str, include_positives: bool
) -> None:
    """Refuse arguments that are none of those to choose from."""
    choices = {
        "output_format": (output_format, FORMATS),
        "judge": (judge, ("fused", "none")),
        "sampling_strategy": (sampling, ("top", "random")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise AnmiError(f'there is no {name} "{value}"; {nearest(str(value), allowed)}')
    if negatives < 1:
        raise AnmiError(f"num_negatives is {negatives}: 1 or more were expected")
    if include_positives and judge != "none":
        raise AnmiError('include_positives ranks relevant documents: set judge="none" with it')


def _recipe(
    recipe: str | Mapping[str, Any] | None, negatives: int, sampling: str, judge: str, score: str
) -> Recipe:
    """Return the steps that choose among what the rules leave."""
    if recipe is None:
        steps: dict[str, Any] = {}
        if judge == "fused":
            route = {"column": "p_evidence", "max_false_negative_rate": None, "barred": _BARRED}
            steps = {
                "duplicate_guard": {},
                "back_off": {},
                "route": route | {"at_least": negatives},
            }
        steps |= {"top": {"by": score}} if sampling == "top" else {"random": {}}
        return Recipe(description="Of the function.", negatives=negatives, steps=steps)
    recipes = {"recipe": recipe} if isinstance(recipe, Mapping) else _shipped(recipe)
    name = "recipe" if isinstance(recipe, Mapping) else recipe
    try:
        chosen = RecipeBook(**recipes).get(name)
    except ValidationError as error:
        problem = error.errors()[0]
        raise AnmiError(f"recipe: {problem['msg'].removeprefix('Value error, ')}") from error
    unmeasured = sorted(chosen.requires & _UNMEASURED)
    if unmeasured:
        raise AnmiError(
            f"the recipe reads {', '.join(unmeasured)}, which only a run of the project measures:"
            " use `kedro run`, or another recipe"
        )
    if chosen.judged and judge == "none":
        raise AnmiError('the recipe reads the judge: leave judge="none" out')
    return chosen.model_copy(update={"negatives": negatives, "pool": None})


def _shipped(name: str) -> dict[str, Any]:
    """Read the recipes of the project in this folder, or of the one this package is a part of."""
    roots = (Path.cwd(), Path(__file__).parents[3])
    files = [root / "conf" / "base" / "recipes.yml" for root in roots]
    for file in files:
        if file.is_file():
            return yaml.safe_load(file.read_text(encoding="utf-8"))["recipes"]
    raise AnmiError(
        f'recipe "{name}" was looked for in {files[0]}, which is not there: give the recipe itself,'
        " or work in the project's folder"
    )


def _similarities(pairs: Pairs, vectors: Vectors) -> Float32s:
    """Return the similarity of each row's query and positive, float32 [R]."""
    query, document = pairs.rows.T
    scores = np.empty(len(query), np.float32)
    for start in range(0, len(query), _ROWS):
        rows = slice(start, start + _ROWS)
        products = vectors[0][query[rows]] * vectors[1][document[rows]]
        scores[rows] = products.sum(axis=1)
    return scores


def _lowest(pairs: Pairs, positive_scores: Float32s) -> Float32s:
    """Return the lowest score of each query's positives, float32 [Q]."""
    queries = pairs.rows[:, 0]
    starts = np.searchsorted(queries, np.arange(len(pairs.queries)))
    return np.minimum.reduceat(positive_scores, starts)


@dataclass(frozen=True)
class Rescore:
    """Scores the first candidates of each retriever by a cross-encoder, in the column ``cross``.

    Attributes
    ----------
    cross_encoder, pairs, batch_size
        What scores which texts, so many at a time.
    reach
        Rank down to which candidates are scored.
    """

    cross_encoder: CrossEncoder
    pairs: Pairs
    batch_size: int
    reach: int

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block with the scores; NaN of what was not scored."""
        ranks = np.fmin(block.columns["dense_rank"], block.columns["bm25_rank"])
        row, slot = np.nonzero(block.filled & (ranks <= self.reach))
        queries = block.query_ids.astype(np.int64)[row]
        scores = np.full(block.documents.shape, np.nan, np.float32)
        documents = block.documents[row, slot].astype(np.int64)
        scores[row, slot] = self._predicted(queries, documents)
        return block.with_columns({"cross": scores})

    def positive_scores(self) -> Float32s:
        """Return the score of each row's query and positive, float32 [R]."""
        return self._predicted(*self.pairs.rows.T)

    def _predicted(self, queries: Int64s, documents: Int64s) -> Float32s:
        texts = [
            (self.pairs.queries[query], self.pairs.documents[document])
            for query, document in zip(queries, documents, strict=True)
        ]
        if not texts:
            return np.zeros(0, np.float32)
        scores = self.cross_encoder.predict(
            texts, batch_size=self.batch_size, show_progress_bar=False
        )
        return np.asarray(scores, np.float32).reshape(len(texts))


class Selection:
    """Runs a recipe, and keeps the negatives and what became of the candidates.

    Parameters
    ----------
    runner
        With the recipe.
    queries
        How many there are.
    score
        Column by which negatives are sorted.
    judge
        Summary of the judge; empty without one.
    """

    def __init__(self, runner: Runner, queries: int, score: str, judge: dict[str, Any]) -> None:
        count = runner.recipe.negatives
        self._runner = runner
        self._score = score
        self._funnel = Funnel(count)
        self._origins = Origins()
        self._expected = Expected(judge)
        self.negatives = np.full((queries, count), -1, np.int64)
        self.scores = np.full((queries, count), np.nan, np.float32)

    def run(self, shards: CandidateShards) -> None:
        """Fit the recipe's steps and select."""
        shards = shards.map(with_probabilities)
        self._runner.fit(shards)
        total = len(self.negatives)
        with Progress(total=total, desc="selecting", plural="queries", unit="query") as bar:
            bar.update(0)
            for block in shards:
                self._add(self._runner.apply(block))
                bar.update(len(block))

    def _add(self, block: Candidates) -> None:
        for diagnosis in (self._funnel, self._origins, self._expected):
            diagnosis.add(block)
        is_negative = block.negatives & (block.query_verdict == OPEN)[:, None]
        key = np.where(is_negative, block.columns[self._score], -np.inf)
        order = np.lexsort((block.documents, -key))
        rows = block.query_ids.astype(np.int64)
        is_best = np.take_along_axis(is_negative, order, axis=1)
        documents = np.where(is_best, np.take_along_axis(block.documents, order, axis=1), -1)
        scores = np.where(is_best, np.take_along_axis(key, order, axis=1), np.nan)
        count = self.negatives.shape[1]
        self.negatives[rows] = widened(documents, count, -1)
        self.scores[rows] = widened(scores, count)

    def info(self) -> MiningInfo:
        """Return the account of the run."""
        coverage = float((self.negatives >= 0).all(axis=1).mean())
        expected = self._expected.result()
        rejected = self._funnel.result()
        sources = self._origins.result()["sources"]
        lines = [f"{len(self.negatives):,} queries, {100 * coverage:.1f} % with all negatives"]
        lines += [f"  {count:>9,} negatives from {source}" for source, count in sources.items()]
        lines += [
            f"  {row['candidates']:>9,} candidates: {step_name(row)}"
            for row in rejected
            if row["candidates"] and row["kind"] not in ("total", "complete", "negative")
        ]
        if expected is not None:
            share = share_sentence(expected["share"], expected["low"], expected["high"])
            lines.append(f"expected false negatives: {share}")
            lines += [expected["warning"]] if expected["warning"] else []
        return MiningInfo(
            description="\n".join(lines),
            coverage=coverage,
            sources=sources,
            false_negatives=expected,
            rejected=rejected,
        )
