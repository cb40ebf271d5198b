"""What a language model that reads single documents is worth, by calls, errors and whom it is asked about.

It is simulated: a server on this machine knows the truth and errs at known rates. ``unbiased``, it
errs as often both ways; ``biased``, it misses nothing and calls twice as many others relevant.
``doubt`` asks as `denoising.llm` does, ``random`` about any candidates; more than 1,000 questions
go by batches. 1,000 queries at most. Rates are of 15 negatives a query by the recipe
``anmi_labels_only``, static encoder, coefficients fitted without the collection; nDCG@10 is of test
queries with completed judgments, after training, for a few cells; ``trained`` has all that was
trained, also without promotions. ``python benchmarks/llm_judge.py [rows] [trained]`` measures what
is named, or both.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import common
from anmi import seeds
from anmi.candidates import CandidateShards
from anmi.judging.fusing import FusedJudge, FusedOptions
from anmi.judging.llm import LLMJudge, LLMOptions, Reader
from anmi.pipelines.denoising.nodes import doubt_threshold
from anmi.selection.recipe import Recipe, Runner
from anmi.store import Store
from common import ROOT, about, kedro, load, recipes, save
from planted import COLLECTIONS, Opened, planted

FOLDER = common.WORK / "llm_judge"
NAMES = ("api_docs", "kg_webnlg/beir_en")
ROUTE = "recipes.anmi_labels_only.steps.route"
RATES, CALLS, QUERIES = (0.02, 0.1, 0.2), (100, 1000, 10_000), 1000
PROMPT = str(ROOT / LLMOptions.model_fields["prompt"].default)
SHOWN = re.compile(r"<query>\n(.*)\n</query>\n<document>\n(.*)\n</document>", re.DOTALL)


class Handler(BaseHTTPRequestHandler):
    """Answers single questions, and batches at once, as the model whose name holds its errors."""

    protocol_version = "HTTP/1.1"
    truth: dict[str, set[str]]
    sent: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """Answer a question, or take a file of them."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path.endswith("/files"):
            self.sent.append(
                "\n".join(line for line in body.splitlines() if line.startswith('{"custom_id"'))
            )
            return self.reply({"id": f"f{len(self.sent) - 1}"})
        asked = json.loads(body)
        file = asked.get("input_file_id")
        return self.reply(
            {"id": "b", "status": "completed", "output_file_id": file}
            if file
            else self.answer(asked)
        )

    def do_GET(self) -> None:
        """Return the answers of a batch; no batch is known from before."""
        if not self.path.endswith("/content"):
            return self.reply({"data": []})
        lines = map(json.loads, self.sent[int(self.path.split("/")[-2][1:])].splitlines())
        made = [
            {"custom_id": x["custom_id"], "response": {"body": self.answer(x["body"])}}
            for x in lines
        ]
        return self.reply("\n".join(map(json.dumps, made)))

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Grade a document, rightly but for the model's errors, the same for the same pair."""
        query, document = SHOWN.search(body["messages"][1]["content"]).groups()  # type: ignore[union-attr]
        _, rate, biased = body["model"].split("-")
        rates = (2 * float(rate), 0.0) if biased == "biased" else (float(rate), float(rate))
        relevant = document in self.truth.get(query, ())
        draw = int(seeds.key(1, body["model"], query + document)[0]) / 2**64
        yes = relevant != (draw < rates[int(relevant)])
        said = (
            {"grade": 3, "snippet": " ".join(document.split()[:5])}
            if yes
            else {"grade": 0, "snippet": ""}
        )
        return {"choices": [{"message": {"content": json.dumps(said)}}]}

    def reply(self, content: Any) -> None:
        """Send text, or JSON."""
        raw = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(truth: dict[str, set[str]], port: Any) -> None:
    """Answer until the process ends, and tell the port."""
    Handler.truth = truth
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        port.send(server.server_address[1])
        server.serve_forever()


class AtRandom(LLMJudge):
    """Asks about any candidates."""

    def distance(self, block: Any) -> Any:
        """Draw."""
        return seeds.uniform(1, "llm/random", block.query_ids, block.documents)


class Collection:
    """One collection with planted truth, judged by evidence, and a server that knows its truth."""

    def __init__(self, name: str) -> None:
        self.name = name
        COLLECTIONS[name] = (*COLLECTIONS[name][:2], QUERIES)
        (each,) = planted([name], "static", work=FOLDER)
        opened = Opened.of(name, "static", FOLDER)
        read, self.texts = opened.read, opened.texts
        judge = FusedJudge(
            FusedOptions(without=name), opened.material(each.block.query_ids.tolist()), "static", 42
        )
        judge.fit(CandidateShards.of([each.block]))
        self.block, self.truth = judge(each.block), each.truth
        self.queries = dict(zip(read.queries.query_id, read.queries.text, strict=True))
        steps = {step: recipes()["anmi_labels_only"]["steps"][step] for step in ("route", "top")}
        recipe = Recipe(description="", negatives=15, steps=steps)
        self.threshold = doubt_threshold(recipe)
        self.runner = Runner(recipe, 42)
        self.runner.fit(CandidateShards.of([self.block]))
        text = dict(zip(read.corpus.document_id, self.texts, strict=True))
        known: dict[str, set[str]] = {}
        for table in (read.qrels[read.qrels.relevance > 0], read.equivalents):
            for query, document in zip(table.query_id, table.document_id, strict=True):
                known.setdefault(self.queries[query], set()).add(text[document])
        mine, other = get_context("fork").Pipe()
        get_context("fork").Process(target=serve, args=(known, other), daemon=True).start()
        self.address = f"http://127.0.0.1:{mine.recv()}/v1"

    def row(self, rate: float, biased: bool, by: str, calls: int, store: Store) -> dict[str, Any]:
        """Ask, choose negatives, and compare with the truth."""
        model = f"judge-{rate:g}-{'biased' if biased else 'unbiased'}"
        given = {
            "model": model,
            "calls": calls,
            "batch": calls > CALLS[1],
            "prompt": PROMPT,
            "concurrency": 8,
        }
        options = LLMOptions(base_url=self.address, **given)
        kind = AtRandom if by == "random" else LLMJudge
        judge = kind(Reader(options, store, "en"), self.queries, self.texts, 42, self.threshold)
        read = judge.fit(CandidateShards.of([self.block]))
        block = self.runner.apply(self.block if read is None else read(self.block))
        taken, promoted = block.negatives, block.of_kind("promoted")
        found = {
            "collection": self.name,
            "error_rate": rate,
            "biased": biased,
            "asked_by": by,
            "calls": calls,
            "share_asked": calls / int(self.block.filled.sum()),
            "false_negative_rate": float(self.truth[taken].mean()),
            "negatives": int(taken.sum()),
            "promoted_right": int((promoted & self.truth).sum()),
            "promoted_wrong": int((promoted & ~self.truth).sum()),
            "ndcg_10": None,
        }
        print(*found.values(), judge.summary.get("errors"), flush=True)
        return found

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the cells."""
        store = Store(Path(tempfile.mkdtemp()))
        yield self.row(0, False, "nobody", 0, store)
        for rate, biased in product(RATES, (False, True)):
            for calls, by in product(
                CALLS if (rate, biased) == (0.1, False) else CALLS[:-1], ("doubt", "random")
            ):
                yield self.row(rate, biased, by, calls, store)

    def trained(self) -> list[dict[str, Any]]:
        """Train without answers and with those of the judge that errs in 0.1, with and without its promotions."""
        work = FOLDER / "trained" / self.name.replace("/", "-")
        asked = {
            "base_url": self.address,
            "model": "judge-0.1-unbiased",
            "calls": CALLS[-1],
            "batch": "true",
        }
        settings = ",".join(f"denoising.llm.{name}={value}" for name, value in asked.items())
        place = COLLECTIONS[self.name][0] + (
            "" if self.name == "api_docs" else f",ingestion.max_queries={QUERIES}"
        )
        systems = {
            "asked_0": "anmi_labels_only",
            f"asked_{CALLS[-1]}": f"anmi_labels_only:{settings}",
            f"asked_{CALLS[-1]}_promoting_none": f"anmi_labels_only:{settings},{ROUTE}.positive=1",
        }
        words = ["--collections", f"{self.name}={place}", "--output", str(work)]
        words += ["--params", f"encoder=static,denoising.fused.without={self.name}"]
        kedro("anmi", "ablate", *(f"{name}={value}" for name, value in systems.items()), *words)
        rows = json.loads((work / "ablation.json").read_text(encoding="utf-8"))["rows"]
        shown = (
            "collection",
            "system",
            "bucket",
            "queries",
            "ndcg_10",
            "difference",
            "p_value",
            "hybrid_ndcg_10",
        )
        return [
            {name: row[name] for name in shown} for row in rows if row["judgments"] == "completed"
        ]


def main() -> None:
    parts = sys.argv[1:] or ["rows", "trained"]
    found = load("llm_judge")
    collections = [Collection(name) for name in NAMES]
    if "rows" in parts:
        found["rows"] = [row for each in collections for row in each.rows()]
    if "trained" in parts:
        found["trained"] = [row for each in collections for row in each.trained()]
    ndcg = {
        (row["collection"], row["system"]): row["ndcg_10"]
        for row in found["trained"]
        if row["bucket"] == "all"
    }
    for row in found["rows"]:
        is_trained = (
            row["asked_by"] != "random" and not row["biased"] and row["error_rate"] in (0, 0.1)
        )
        row["ndcg_10"] = (
            ndcg.get((row["collection"], f"asked_{row['calls']}")) if is_trained else None
        )
    save("llm_judge", found | about(), None if len(parts) == 2 else found)


if __name__ == "__main__":
    main()
