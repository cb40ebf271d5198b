"""A language model reads single documents where it pays, and its answers improve the fused judge on all others."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_COLUMNS: Final = ["query_id", "document", "odds", "stands", "grade", "snippet"]
# From this grade on a document answers the query.
RELEVANT: Final = 2
_PROPERTIES: Final = {
    "grade": {"type": "integer", "enum": [0, 1, 2, 3]},
    "snippet": {"type": "string"},
}
_SCHEMA: Final = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": [*_PROPERTIES],
    "additionalProperties": False,
}
_AROUND: Final = re.compile(r"\A\s*```(?:json)?|```\s*\Z")
_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:query|document)\b)", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
_GAP: Final = "\n[…]\n"
# The store keeps values of one size; an answer is cut to it.
_BYTES: Final = 512
_MOST_AT_ONCE: Final = 20_000
_ROUNDS: Final = 3
# Of what a yes makes positives nothing is known where the fused judge is too cautious, so some
# others are asked, too.
_TURNS: Final = (1, 1, 4)
_EXAMPLES: Final = 20
# Known pairs: at most so many of each kind, a tenth of the budget; relevant ones must be called so
# more often by this.
_KNOWN: Final = 50
_LEAST_KNOWN: Final = 5
_LEAST_LEAD: Final = 0.25
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
    """What the model has to say."""

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
        said = _Answer.model_validate_json(_AROUND.sub("", text))
    except ValidationError:
        raise ValueError("another schema") from None
    quoted = _words(said.snippet)
    if said.grade >= RELEVANT and (not quoted.strip() or quoted not in _words(document)):
        raise ValueError("a snippet that the document does not hold")
    return said.grade, said.snippet


def best_passages(query: str, document: str, longest: int, language: str) -> str:
    """Return the passages of a long document that hold most of the query's words, in their order."""
    if len(document) <= longest:
        return document
    texts = [document[part.start : part.end] for part in cut_text(document, TARGET, language)]
    wanted, *found = ({*words} for words in tokenizer("auto", language)([query, *texts]))
    held = Counter(word for words in found for word in words & wanted)
    value = [sum(np.log1p(len(texts) / held[word]) for word in words & wanted) for words in found]
    room = longest
    kept = list[int]()
    for place in sorted(range(len(texts)), key=lambda place: -value[place]):
        if not kept or len(texts[place]) + len(_GAP) <= room:
            kept.append(place)
            room -= len(texts[place]) + len(_GAP)
    return _GAP.join(texts[place] for place in sorted(kept))[:longest]


class Reader:
    """Asks for grades, one call each; answers are stored under prompt and model, and asked for once.

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
            self._system, _, self._user = (
                Path(options.prompt).read_text(encoding="utf-8").partition("\n---\n")
            )
        except (OSError, UnicodeDecodeError):
            self._user = ""
        if not {"{query}", "{document}"} <= {*re.findall(r"\{\w+\}", self._user)}:
            raise AnmiError(
                f"denoising.llm.prompt: {options.prompt} must be a file that holds instructions, a"
                " line --- and below it {query} and {document}"
            )
        parts = (options.base_url, options.model, str(options.max_tokens), self._system, self._user)
        self.fingerprint = digest("llm", *parts).hex()
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
        longest = self.options.max_characters
        language = self._language
        shown = [
            join(
                *(
                    _TAG.sub("‹", text)
                    for text in (query, best_passages(query, document, longest, language))
                )
            )
            for query, document in zip(queries[: self.left], documents[: self.left], strict=True)
        ]
        self.left -= len(shown)
        answers = list[bytes | None]()
        while len(answers) < len(shown) and (some := self._affordable()):
            part = shown[len(answers) : len(answers) + some]
            came, problems = self._store.answers(
                self.fingerprint, part, self._question, self._ask, _packed, self.options.model
            )
            answers += came
            self.problems += problems
        texts = ["" if value is None else value.rstrip(b"\0").decode() for value in answers]
        texts += [""] * (len(queries) - len(texts))
        return np.array([float(text[:1] or "nan") for text in texts]), [text[1:] for text in texts]

    def _affordable(self) -> int:
        """Return how many questions the money left pays for; a few until their price is known."""
        if self.options.cost is None:
            return _MOST_AT_ONCE
        each = (
            self.money / self.sent if self.money else self.options.cost / self.options.concurrency
        )
        return min(int((self.options.cost - self.money) / each), _MOST_AT_ONCE)

    def _question(self, pair: str) -> tuple[str, str]:
        query, document = split(pair)
        shown = {"{query}": query, "{document}": document}
        return self._system, re.sub(r"\{(query|document)\}", lambda at: shown[at[0]], self._user)

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
    said = f"{grade}{snippet}".replace("\0", " ").encode("utf-8", "replace")[:_BYTES]
    return said.decode(errors="ignore").encode().ljust(_BYTES, b"\0")


@dataclass(frozen=True)
class Errors:
    """How a reader errs, and how the fused judge does: the true log-odds are slope · x + intercept.

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

    def right(self, odds: Float64s) -> Float64s:
        """Return corrected log-odds."""
        return self.slope * odds + self.intercept

    def after(self, odds: Float64s, grades: NDArray[Any]) -> Float64s:
        """Return corrected log-odds after grades, of which NaN adds nothing."""
        said = np.where(
            grades >= RELEVANT, self.hit / self.false, (1 - self.hit) / (1 - self.false)
        )
        return self.right(odds) + np.where(np.isfinite(grades), np.log(said), 0.0)


def fit_errors(
    odds: Float64s,
    yes: Bools,
    relevant: Bools,
    far: Bools,
) -> Errors:
    """Fit all four numbers by maximum a posteriori; which candidates are relevant is not known.

    Parameters
    ----------
    odds, yes
        Log-odds of candidates by the fused judge, and whether they were called relevant, [n].
    relevant, far
        Whether labelled positives and random documents were.
    """
    counts = np.array([_PRIOR, _PRIOR[::-1]]) + [
        np.bincount(~each, minlength=2) for each in (relevant, far)
    ]

    def objective(point: Float64s) -> float:
        hit, false = scipy.special.expit(point[:2])
        chance = false + (hit - false) * scipy.special.expit(point[2] * odds + point[3])
        said = np.log(np.where(yes, chance, 1 - chance)).sum()
        known = (counts * np.log([[hit, 1 - hit], [false, 1 - false]])).sum()
        return float(0.5 * (((point[2:] - [1, 0]) / _DEVIATIONS) ** 2).sum() - said - known)

    start = np.array([*scipy.special.logit(counts[:, 0] / counts.sum(axis=1)), 1.0, 0.0])
    bounds = [(-9, 9), (-9, 9), (0.1, 3), (-6, 6)]
    found = scipy.optimize.minimize(objective, start, bounds=bounds, method="L-BFGS-B").x
    return Errors(*map(float, (*scipy.special.expit(found[:2]), *found[2:])))


@dataclass(frozen=True)
class Read:
    """Adds to blocks what was answered of some of their candidates, and what follows from it for the others.

    ``llm`` is the grade. ``p_evidence`` becomes the probability after the answer, or that of the
    recalibrated judge.

    Attributes
    ----------
    table
        A row for each candidate that was asked about: ``query_id, document, odds, stands, grade,
        snippet``.
    """

    table: pd.DataFrame
    errors: Errors

    def grades(self, block: Candidates, none: float = np.nan) -> Float64s:
        """Return the grades, [Q, M]: NaN for what was not asked, ``none`` where no judgment came."""
        found = np.full(block.documents.shape, np.nan)
        rows = pd.Index(block.query_ids).get_indexer(pd.Index(self.table.query_id))
        table = self.table[rows >= 0]
        rows = rows[rows >= 0]
        which, slot = np.nonzero(block.documents[rows] == table.document.to_numpy()[:, None])
        found[rows[which], slot] = table.grade.fillna(none).to_numpy()[which]
        return found

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with the columns."""
        grades = self.grades(block)
        before = log_odds(block.columns["p_evidence"])
        after = self.errors.after(before, grades)
        own = dict[str, NDArray[Any]]()
        for name in {"p_evidence", "p_heldout"} & block.positive_columns.keys():
            odds = log_odds(block.positive_columns[name])
            own |= {
                name: scipy.special.expit(self.errors.right(odds)),
                SHIFT: self.errors.right(odds) - odds,
            }
        return block.with_columns(
            {"p_evidence": scipy.special.expit(after), GRADE: grades, SHIFT: after - before}, own
        )


@dataclass
class LLMJudge:
    """Asks about candidates until the budget is spent, in turn about negatives and about what may be a positive.

    Parameters
    ----------
    reader
        Who is asked.
    query_texts, document_texts
        Texts by query id and by document index.
    seed
        Of the run.
    select
        Returns a block with the verdicts that a recipe gives.
    """

    reader: Reader
    query_texts: Mapping[str, str]
    document_texts: Sequence[str]
    seed: int
    select: Callable[[Candidates], Candidates]
    summary: dict[str, Any] = field(default_factory=lambda: {"calls": 0})

    def fit(self, shards: CandidateShards) -> Read | None:
        """Ask; None where nothing was learned."""
        if not self.reader.left:
            return None
        known = self._known(shards, min(_KNOWN, self.reader.left // 10))
        yes = [_said(self._read(table)).to_numpy(bool) for table in known]
        nothing = np.zeros(0)
        read = Read(pd.DataFrame(columns=_COLUMNS), fit_errors(nothing, nothing.astype(bool), *yes))
        trusted = self._trusted(*yes)
        rounds = 1 if self.reader.options.batch else _ROUNDS
        for number in range(rounds if trusted else 0):
            more = self._worth_it(shards, read, self.reader.left // (rounds - number))
            table = pd.concat(
                [*([read.table] if len(read.table) else []), self._read(more)], ignore_index=True
            )
            judged = table[table.grade.notna()]
            errors = fit_errors(judged.odds.to_numpy(float), _said(judged).to_numpy(bool), *yes)
            read = Read(table, errors)
        self._summarise(read, yes, trusted)
        return read if trusted else None

    def gains(self, block: Candidates, chosen: Candidates, errors: Errors) -> list[Float64s]:
        """Return the chances that a call finds a false negative, a positive, and what may become one, [Q, M] each."""
        chance = block.columns["p_evidence"].astype(np.float64)
        yes = errors.false + (errors.hit - errors.false) * chance
        after = scipy.special.expit(
            errors.after(_odds_before(block), np.full(chance.shape, RELEVANT))
        )
        maybe = (chosen.of_kind("uncertain", "promoted") | chosen.undecided) & (after >= 0.5)
        found = [
            np.where(chosen.negatives, chance * errors.hit, 0),
            np.where(maybe & (after >= SURE), yes, 0),
        ]
        return [*found, np.where(maybe & (after < SURE), yes, 0)]

    def _worth_it(self, shards: CandidateShards, read: Read, most: int) -> pd.DataFrame:
        """Return the candidates with the largest gains, by turns of the kinds as long as there are any."""
        best = [pd.DataFrame(columns=[*_COLUMNS, "gain", "kind"])]
        for block in map(read, shards):
            chosen = self.select(block)
            fresh = (
                block.filled
                & np.isnan(read.grades(block, -1))
                & np.isnan(block.columns.get(MARKED, np.nan))
            )
            for kind, gain in enumerate(self.gains(block, chosen, read.errors)):
                rows, slots = np.nonzero(fresh & (gain > 0))
                best.append(
                    pd.DataFrame(
                        {
                            "query_id": block.query_ids[rows],
                            "document": block.documents[rows, slots],
                            "odds": _odds_before(block)[rows, slots],
                            "stands": chosen.negatives[rows, slots],
                            "gain": gain[rows, slots],
                            "kind": kind,
                        }
                    ).nlargest(most, "gain")
                )
        found = pd.concat([each for each in best if len(each)] or best).sort_values(
            ["gain", "query_id", "document"], ascending=[False, True, True]
        )
        turn = found.groupby("kind").cumcount() * found.kind.map(dict(enumerate(_TURNS))).astype(
            int
        )
        return found.iloc[np.argsort(turn, kind="stable")[:most]]

    def _known(self, shards: CandidateShards, most: int) -> list[pd.DataFrame]:
        """Draw labelled positives, and random documents that are no candidates of their queries."""
        parts = []
        for block in shards.only():
            draws = seeds.uniform(
                self.seed, "llm/known", block.query_ids, np.array([[0, 1]] * len(block), np.int32)
            )
            document = (draws[:, 1] * len(self.document_texts)).astype(int)
            near = (np.hstack([block.documents, block.positives]) == document[:, None]).any(axis=1)
            parts.append(
                pd.DataFrame(
                    {
                        "query_id": block.query_ids,
                        "draw": draws[:, 0],
                        "relevant": block.positives[:, 0],
                        "far": np.where(near, PADDING, document),
                    }
                )
            )
        drawn = pd.concat(parts).sort_values("draw")
        tables = (drawn.rename(columns={kind: "document"}) for kind in ("relevant", "far"))
        return [table[table.document != PADDING].head(most) for table in tables]

    def _read(self, table: pd.DataFrame) -> pd.DataFrame:
        queries = [self.query_texts[str(query)] for query in table.query_id]
        grades, snippets = self.reader.read(
            queries, [self.document_texts[int(each)] for each in table.document]
        )
        return table.assign(grade=grades, snippet=snippets)

    def _trusted(self, relevant: Bools, far: Bools) -> bool:
        """Whether it calls labelled positives relevant and not just anything; else say why it is not used."""
        enough = min(len(relevant), len(far)) >= _LEAST_KNOWN
        if enough and relevant.mean() - far.mean() >= _LEAST_LEAD:
            return True
        log.warning(
            "%s calls %d of %d labelled positives relevant and %d of %d random documents, so its"
            " answers are not used%s; take another model or prompt, or more than %d calls"
            " (denoising.llm)",
            self.reader.options.model,
            relevant.sum(),
            len(relevant),
            far.sum(),
            len(far),
            "" if enough else ": too few",
            10 * _LEAST_KNOWN,
        )
        return False

    def _summarise(self, read: Read, yes: Sequence[Bools], trusted: bool) -> None:
        reader = self.reader
        errors = read.errors
        model = self.reader.options.model
        judged = read.table[read.table.grade.notna()]
        odds = judged.odds.to_numpy(float)
        after = scipy.special.expit(errors.after(odds, judged.grade.to_numpy(float)))
        judged = judged.assign(before=scipy.special.expit(odds), after=after)
        stands = judged[judged.stands.astype(bool)]
        others = judged[~judged.stands.astype(bool)]
        called = int(_said(stands).sum())
        promoted = int((others.after >= SURE).sum())
        said = (
            f"{model} read {len(stands)} negatives and called {called} relevant, and {len(others)}"
            f" others, {promoted} of which it makes positives; it calls {errors.hit:.0%} of"
            f" relevant documents relevant and {errors.false:.1%} of others; {reader.sent} calls"
            f" cost {reader.money:.2f}."
        )
        moved = judged.iloc[np.argsort(judged.before - judged.after, kind="stable")[:_EXAMPLES]]
        examples = [
            {
                "query": self.query_texts[row["query_id"]],
                "document": self.document_texts[row["document"]][:300],
            }
            | {name: row[name] for name in ("query_id", "snippet", "grade", "before", "after")}
            for row in moved.to_dict("records")
        ]
        self.summary = {
            "model": model,
            "calls": reader.sent,
            "tokens": reader.tokens.tolist(),
            "cost": reader.money,
            "problems": dict(reader.problems),
            "used": trusted,
            "errors": asdict(errors),
            "said": said if trusted else "",
            "others_promoted": promoted,
            "known": [{"asked": len(each), "called_relevant": int(each.sum())} for each in yes],
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
            log.info("%s", said)


def _odds_before(block: Candidates) -> Float64s:
    """Return the fused judge's own log-odds, [Q, M]."""
    return np.asarray(log_odds(block.columns["p_evidence"]) - block.columns[SHIFT])


def _said(table: pd.DataFrame) -> pd.Series:
    return table.grade[table.grade.notna()] >= RELEVANT
