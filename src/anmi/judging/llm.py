"""A language model grades the candidates in doubt, which also corrects the fused judge."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anmi import seeds
from anmi.candidates import GRADE, MARKED, PADDING, SHIFT, Candidates, CandidateShards
from anmi.corpus.passages import TARGET, cut_text
from anmi.errors import AnmiError
from anmi.fingerprint import digest
from anmi.judging.cross_encoder import join, split
from anmi.judging.endpoint import Endpoint, EndpointOptions, Reply
from anmi.judging.fused import SURE, log_odds
from anmi.ragged import Bools, Float64s
from anmi.retrieval.tokenize import tokenizer
from anmi.store import Store, reasons

log = logging.getLogger(__name__)
# From this grade on a document answers the query.
RELEVANT: Final = 2
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "grade": {"type": "integer", "enum": [0, 1, 2, 3]},
        "snippet": {"type": "string"},
    },
    "required": ["grade", "snippet"],
    "additionalProperties": False,
}
_CODE_FENCE: Final = re.compile(r"\A\s*```(?:json)?|```\s*\Z")
_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:query|document)\b)", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
_GAP: Final = "\n[…]\n"
# The store keeps values of one size; an answer is cut to it.
_BYTES: Final = 512
_QUESTIONS_AT_ONCE: Final = 20_000
_EXAMPLES: Final = 20
# Pairs of known relevance that the model is checked on: at most so many of each kind, a tenth of
# the budget. It must call relevant ones relevant more often by this lead.
_CHECKS: Final = 50
_FEWEST_CHECKS: Final = 5
_LOWEST_LEAD: Final = 0.25
# The prior: one answer in ten is wrong, as if ten pairs had been seen, and the fused judge is about
# right.
_PRIOR: Final = (9.0, 1.0)
_DEVIATIONS: Final = np.array([0.25, 1.5])


class LLMOptions(EndpointOptions):
    """Which language model reads, and how much it may."""

    max_tokens: int | None = Field(512, ge=1)
    calls: int = Field(1000, ge=0)
    cost: float | None = Field(None, gt=0)
    prices: tuple[float, float] = (0.0, 0.0)
    batch: bool = False
    prompt: str = "conf/base/prompts/relevance.txt"

    @model_validator(mode="after")
    def _cost_is_known(self) -> Self:
        if self.cost is not None and not max(self.prices) > 0:
            raise ValueError(
                "cost is a limit in money, and prices are 0: give those of a million tokens in"
                " and out"
            )
        return self


class _Answer(BaseModel):
    """What the model has to answer."""

    model_config = ConfigDict(strict=True)

    grade: Literal[0, 1, 2, 3]
    snippet: str


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def answer(text: str, document: str) -> tuple[int, str]:
    r"""Return grade and snippet.

    Raises
    ------
    ValueError
        It is no such JSON, or a document is called relevant by words that it does not hold.

    Examples
    --------
    >>> answer('```json\n{"grade": 3, "snippet": "it IS tall."}\n```', "Oaks: it is tall, and old.")
    (3, 'it IS tall.')
    """
    try:
        parsed = _Answer.model_validate_json(_CODE_FENCE.sub("", text))
    except ValidationError:
        raise ValueError("another schema") from None
    quotation = _words(parsed.snippet)
    if parsed.grade >= RELEVANT and (not quotation.strip() or quotation not in _words(document)):
        raise ValueError("a snippet that the document does not hold")
    return parsed.grade, parsed.snippet


def best_passages(
    query: str,
    document: str,
    max_characters: int,
    language: str,
) -> str:
    """Return the passages of a long document that hold most of the query's words, in order."""
    if len(document) <= max_characters:
        return document
    spans = cut_text(document, TARGET, language)
    passages = [document[span.start : span.end] for span in spans]
    query_words, *passage_words = map(set, tokenizer("auto", language)([query, *passages]))
    shared_words = [words & query_words for words in passage_words]
    frequency = Counter(word for words in shared_words for word in words)
    scores = [
        sum(np.log1p(len(passages) / frequency[word]) for word in words) for words in shared_words
    ]
    characters_left = max_characters
    chosen = list[int]()
    for number in np.argsort(-np.array(scores), kind="stable").tolist():
        length = len(passages[number]) + len(_GAP)
        if not chosen or length <= characters_left:
            chosen.append(number)
            characters_left -= length
    return _GAP.join(passages[number] for number in sorted(chosen))[:max_characters]


class Reader:
    """Asks for grades, one call each; answers are stored, and asked for once.

    Attributes
    ----------
    left
        Questions that may still be asked; stored ones count, so that a run that is repeated is the
        same.
    sent, tokens, problems
        Calls that were made, their tokens in and out, and why some gave no judgment.
    """

    def __init__(self, options: LLMOptions, store: Store, language: str) -> None:
        self.options = options
        self._store = store
        self._language = language
        self._endpoint = Endpoint(options)
        try:
            prompt = Path(options.prompt).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            prompt = ""
        self._system, _, self._user = prompt.partition("\n---\n")
        if not {"{query}", "{document}"} <= {*re.findall(r"\{\w+\}", self._user)}:
            raise AnmiError(
                f"denoising.llm.prompt: {options.prompt} must be a file that holds instructions, a"
                " line --- and below it {query} and {document}"
            )
        model = (options.base_url, options.model, str(options.max_tokens))
        self.fingerprint = digest("llm", *model, self._system, self._user).hex()
        self.left = options.calls
        self.sent = 0
        self.tokens = np.zeros(2, np.int64)
        self.problems = Counter[str]()

    @property
    def money(self) -> float:
        """What was spent."""
        return float(self.tokens @ np.array(self.options.prices)) / 1e6

    def read(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Float64s, list[str]]:
        """Return grades [n], NaN where none came or the budget is spent, and the snippets."""
        pairs = list(map(self._pair, queries[: self.left], documents[: self.left]))
        self.left -= len(pairs)
        answers = list[bytes | None]()
        while len(answers) < len(pairs) and (count := self._affordable()):
            next_pairs = pairs[len(answers) : len(answers) + count]
            next_answers, problems = self._store.answers(
                self.fingerprint,
                next_pairs,
                self._question,
                self._ask,
                _packed,
                self.options.model,
            )
            answers += next_answers
            self.problems += problems
        texts = [(packed or b"").rstrip(b"\0").decode() for packed in answers]
        texts += [""] * (len(queries) - len(texts))
        grades = [float(text[:1] or "nan") for text in texts]
        snippets = [text[1:] for text in texts]
        return np.array(grades), snippets

    def _pair(self, query: str, document: str) -> str:
        """Join query and document so that neither can end the tags that they stand in."""
        passages = best_passages(query, document, self.options.max_characters, self._language)
        return join(_TAG.sub("‹", query), _TAG.sub("‹", passages))

    def _affordable(self) -> int:
        """Return how many questions the money left pays for; a few until their price is known."""
        cost = self.options.cost
        if cost is None:
            return _QUESTIONS_AT_ONCE
        price = self.money / self.sent if self.money else cost / self.options.concurrency
        return min(int((cost - self.money) / price), _QUESTIONS_AT_ONCE)

    def _question(self, pair: str) -> tuple[str, str]:
        query, document = split(pair)
        texts = {"{query}": query, "{document}": document}
        return self._system, re.sub(
            r"\{(query|document)\}", lambda match: texts[match[0]], self._user
        )

    def _ask(self, questions: Sequence[tuple[str, str]]) -> Iterator[tuple[int, Reply]]:
        ask = self._endpoint.ask_in_batch if self.options.batch else self._endpoint.ask
        for number, reply in ask(questions, _SCHEMA):
            self.sent += 1
            # Four characters count as a token where the endpoint does not say how many it took.
            characters = sum(map(len, questions[number])), len(reply.text)
            self.tokens += reply.tokens if any(reply.tokens) else np.array(characters) // 4
            yield number, reply


def _packed(reply: Reply, pair: str) -> bytes:
    """Return an answer as it is stored."""
    grade, snippet = answer(reply.text, split(pair)[1])
    encoded = f"{grade}{snippet}".replace("\0", " ").encode("utf-8", "replace")[:_BYTES]
    return encoded.decode(errors="ignore").encode().ljust(_BYTES, b"\0")


@dataclass(frozen=True)
class Errors:
    """Errors of a reader, and of the fused judge: true log-odds are slope · x + intercept.

    Attributes
    ----------
    hit, false
        Chance that the reader calls a relevant document relevant, and one that is not.
    slope, intercept
        Correct the fused judge's log-odds x.
    """

    hit: float = 0.9
    false: float = 0.1
    slope: float = 1.0
    intercept: float = 0.0

    def corrected(self, odds: Float64s) -> Float64s:
        """Return corrected log-odds."""
        return self.slope * odds + self.intercept

    def after(self, odds: Float64s, grades: NDArray[Any]) -> Float64s:
        """Return corrected log-odds after grades, of which NaN adds nothing."""
        if_relevant = self.hit / self.false
        if_not_relevant = (1 - self.hit) / (1 - self.false)
        ratio = np.where(grades >= RELEVANT, if_relevant, if_not_relevant)
        by_grade = np.where(np.isfinite(grades), np.log(ratio), 0.0)
        return self.corrected(odds) + by_grade


def fit_errors(
    odds: Float64s, called_relevant: Bools, positives_called: Bools, strangers_called: Bools
) -> Errors:
    """Fit all four numbers by maximum a posteriori; which candidates are relevant is not known.

    Parameters
    ----------
    odds, called_relevant
        Log-odds of candidates by the fused judge, and whether they were called relevant, [n].
    positives_called, strangers_called
        Whether labelled positives and random documents were.
    """
    counts = np.array([_PRIOR, _PRIOR[::-1]])
    counts += [np.bincount(~called, minlength=2) for called in (positives_called, strangers_called)]

    def objective(point: Float64s) -> float:
        hit, false = scipy.special.expit(point[:2])
        relevant = scipy.special.expit(point[2] * odds + point[3])
        chance = false + (hit - false) * relevant
        likelihood = np.where(called_relevant, chance, 1 - chance)
        of_candidates = np.log(likelihood).sum()
        check_chances = [[hit, 1 - hit], [false, 1 - false]]
        of_checks = (counts * np.log(check_chances)).sum()
        deviations = (point[2:] - [1, 0]) / _DEVIATIONS
        penalty = 0.5 * (deviations**2).sum()
        return float(penalty - of_candidates - of_checks)

    check_shares = counts[:, 0] / counts.sum(axis=1)
    start = np.array([*scipy.special.logit(check_shares), 1.0, 0.0])
    bounds = [(-9, 9), (-9, 9), (0.1, 3), (-6, 6)]
    point = scipy.optimize.minimize(objective, start, bounds=bounds, method="L-BFGS-B").x
    hit, false = scipy.special.expit(point[:2]).tolist()
    slope, offset = point[2:].tolist()
    return Errors(hit, false, slope, offset)


@dataclass(frozen=True)
class Answers:
    """Adds to blocks the answers on some candidates, and what follows for the others.

    ``llm`` is the grade. ``p_evidence`` becomes the probability after the answer, or that of the
    recalibrated judge.

    Attributes
    ----------
    table
        A row for each candidate that was asked about: ``query_id, document, odds, grade, snippet``.
    """

    table: pd.DataFrame
    errors: Errors

    def grades(self, block: Candidates) -> Float64s:
        """Return the grades, [Q, M]; NaN where nothing was asked or no judgment came."""
        grades = np.full(block.documents.shape, np.nan)
        rows = pd.Index(block.query_ids).get_indexer(pd.Index(self.table.query_id))
        table = self.table[rows >= 0]
        rows = rows[rows >= 0]
        matches = block.documents[rows] == table.document.to_numpy()[:, None]
        answers, slots = np.nonzero(matches)
        grades[rows[answers], slots] = table.grade.to_numpy()[answers]
        return grades

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with the columns."""
        grades = self.grades(block)
        odds = log_odds(block.columns["p_evidence"])
        after = self.errors.after(odds, grades)
        columns = {"p_evidence": scipy.special.expit(after), GRADE: grades, SHIFT: after - odds}
        positive_columns = dict[str, NDArray[Any]]()
        for column in {"p_evidence", "p_heldout"} & block.positive_columns.keys():
            odds = log_odds(block.positive_columns[column])
            after = self.errors.corrected(odds)
            positive_columns |= {column: scipy.special.expit(after), SHIFT: after - odds}
        return block.with_columns(columns, positive_columns)


@dataclass
class LLMJudge:
    """Asks about the candidates nearest to the threshold, until the budget is spent.

    Parameters
    ----------
    reader
        Who is asked.
    query_texts, document_texts
        Texts by query id and by document index.
    seed
        Of the run.
    threshold
        Probability from which on the recipe doubts a candidate.
    """

    reader: Reader
    query_texts: Mapping[str, str]
    document_texts: Sequence[str]
    seed: int
    threshold: float
    summary: dict[str, Any] = field(default_factory=lambda: {"calls": 0})

    def fit(self, shards: CandidateShards) -> Answers | None:
        """Ask; None where nothing was learned."""
        if not self.reader.left:
            return None
        checks = [
            _called_relevant(self._read(table))
            for table in self._checks(shards, min(_CHECKS, self.reader.left // 10))
        ]
        trusted = self._trusted(*checks)
        table = self._read(self._doubtful(shards, self.reader.left if trusted else 0))
        judged = table[table.grade.notna()]
        errors = fit_errors(judged.odds.to_numpy(float), _called_relevant(judged), *checks)
        self._summarise(judged, errors, checks, trusted)
        return Answers(table, errors) if trusted else None

    def distance(self, block: Candidates) -> Float64s:
        """Return how far candidates are from the threshold, in log-odds, [Q, M]."""
        odds = log_odds(block.columns["p_evidence"])
        return np.abs(odds - log_odds(np.array(self.threshold)))

    def _doubtful(self, shards: CandidateShards, count: int) -> pd.DataFrame:
        """Return the candidates nearest to the threshold; of those that a person marked none."""
        order = ["distance", "query_id", "document"]
        tables = []
        for block in shards:
            is_open = block.filled & np.isnan(block.columns.get(MARKED, np.nan))
            distance = np.where(is_open, self.distance(block), np.nan)
            rows, slots = np.nonzero(np.isfinite(distance))
            table = pd.DataFrame(
                {
                    "query_id": block.query_ids[rows],
                    "document": block.documents[rows, slots],
                    "odds": log_odds(block.columns["p_evidence"])[rows, slots],
                    "distance": distance[rows, slots],
                }
            )
            tables.append(table.sort_values(order).head(count))
        return pd.concat(tables).sort_values(order).head(count)

    def _checks(self, shards: CandidateShards, count: int) -> list[pd.DataFrame]:
        """Draw labelled positives, and random documents that are no candidates of their queries."""
        tables = []
        for block in shards.only():
            slots = np.array([[0, 1]] * len(block), np.int32)
            draws = seeds.uniform(self.seed, "llm/known", block.query_ids, slots)
            strangers = (draws[:, 1] * len(self.document_texts)).astype(int)
            documents = np.hstack([block.documents, block.positives])
            is_near = (documents == strangers[:, None]).any(axis=1)
            columns = {
                "query_id": block.query_ids,
                "draw": draws[:, 0],
                "positive": block.positives[:, 0],
                "stranger": np.where(is_near, PADDING, strangers),
            }
            tables.append(pd.DataFrame(columns))
        drawn = pd.concat(tables).sort_values("draw")
        pairs = [drawn.rename(columns={kind: "document"}) for kind in ("positive", "stranger")]
        return [table[table.document != PADDING].head(count) for table in pairs]

    def _read(self, table: pd.DataFrame) -> pd.DataFrame:
        queries = [self.query_texts[str(query)] for query in table.query_id]
        documents = [self.document_texts[int(document)] for document in table.document]
        grades, snippets = self.reader.read(queries, documents)
        return table.assign(grade=grades, snippet=snippets)

    def _trusted(self, positives: Bools, strangers: Bools) -> bool:
        """Tell whether it calls labelled positives relevant and not just anything; else warn."""
        enough = min(len(positives), len(strangers)) >= _FEWEST_CHECKS
        if enough and positives.mean() - strangers.mean() >= _LOWEST_LEAD:
            return True
        log.warning(
            "%s calls %d of %d labelled positives relevant and %d of %d random documents, so its"
            " answers are not used%s; take another model or prompt, or more than %d calls"
            " (denoising.llm)",
            self.reader.options.model,
            positives.sum(),
            len(positives),
            strangers.sum(),
            len(strangers),
            "" if enough else ": too few",
            10 * _FEWEST_CHECKS,
        )
        return False

    def _summarise(
        self, judged: pd.DataFrame, errors: Errors, checks: Sequence[Bools], trusted: bool
    ) -> None:
        reader = self.reader
        model = reader.options.model
        odds = judged.odds.to_numpy(float)
        after = scipy.special.expit(errors.after(odds, judged.grade.to_numpy(float)))
        judged = judged.assign(before=scipy.special.expit(odds), after=after)
        sentence = (
            f"{model} read {len(judged)} candidates and called {_called_relevant(judged).sum()}"
            f" relevant, {(after >= SURE).sum()} of which become positives; it calls"
            f" {errors.hit:.0%} of relevant documents relevant and {errors.false:.1%} of others;"
            f" {reader.sent} calls cost {reader.money:.2f}."
        )
        by_rise = np.argsort(judged.before - judged.after, kind="stable")
        columns = ["query_id", "snippet", "grade", "before", "after"]
        examples = [
            {
                "query": self.query_texts[row["query_id"]],
                "document": self.document_texts[row["document"]][:300],
            }
            | {column: row[column] for column in columns}
            for row in judged.iloc[by_rise[:_EXAMPLES]].to_dict("records")
        ]
        self.summary = {
            "model": model,
            "calls": reader.sent,
            "tokens": reader.tokens.tolist(),
            "cost": reader.money,
            "problems": dict(reader.problems),
            "used": trusted,
            "errors": asdict(errors),
            "said": sentence if trusted else "",
            "known": [
                {"asked": len(called), "called_relevant": int(called.sum())} for called in checks
            ],
            "examples": examples,
        }
        if reader.problems:
            log.warning(
                "%d of %d calls to %s gave no judgment (%s); they are asked again next time",
                reader.problems.total(),
                reader.sent,
                model,
                reasons(reader.problems),
            )
        if trusted:
            log.info("%s", sentence)


def _called_relevant(table: pd.DataFrame) -> Bools:
    """Return which of the judged rows were called relevant."""
    return (table.grade.dropna() >= RELEVANT).to_numpy(bool)
