"""The formulas of docs/scale.md: from measured constants (benchmarks/results/scale.json) to tables.

What no run of ours could measure stands in `ASSUMED` with a low and a high value, and goes into every figure with both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

TOKENS_PER_WORD: Final = 1.3
MEDQUAD_QUERY_WORDS: Final = 7.3
JUDGED, NEGATIVES, UNCERTAIN = 16, 15, 8
GB, HOUR = 1e9, 3600.0
SHARD_DOCUMENTS: Final = 10_000_000
# What a process has before any document: libraries, and the shard at hand.
BASE_GB: Final = 2.0
# As the recorded runs call them: columns were saved with the block then. Since, `bm25_candidates` is a view of
# `candidates`, and stages save what they add: `evidence`, `judgments` and `ratings`.
BLOCKS: Final = (
    "bm25_candidates", "candidates", "evidence_candidates", "judged_candidates", "rated_candidates", "selection",
)  # fmt: skip
WIDTH: Final = 384


@dataclass(frozen=True)
class Range:
    """A low and a high value."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> Range:
        """Return both multiplied, each by its own where two are given."""
        return Range(self.low * low, self.high * (low if high is None else high))

    def by(self, other: Range) -> Range:
        """Return the product."""
        return self.times(other.low, other.high)


NONE: Final = Range(0, 0)
# Low and high value, unit and reason of each.
ASSUMED: Final[dict[str, tuple[float, float, str, str]]] = {
    "gpu_encode": (2_000, 10_000, "passages/s per GPU", "MiniLM-L6, 75 tokens; 1.6 GFLOP each, at 3 to 16 TFLOP/s"),
    "gpu_judge": (2_000, 10_000, "pairs/s per GPU", "three layers of MiniLM, 128 tokens; 1.4 GFLOP each"),
    "gpu_flops": (5e12, 15e12, "FLOP/s per GPU", "k-means and assignment of IVF cells, float32"),
    "service": (
        0.01,
        0.05,
        "core-seconds per query and 10 M passages",
        "Lucene or Tantivy with block-max WAND, k = 200",
    ),
    "pq_code": (2e-9, math.nan, "core-seconds per code", "scan of 96-byte codes; high: measured with overhead"),
    "busy": (0.9, 0.5, "share of the cluster that works", "stragglers, loading of shards, retries"),
    "core_hour": (0.03, 0.06, "$ per core-hour", "ballpark on demand, with memory"),
    "gpu_hour": (1.0, 4.0, "$ per GPU-hour", "ballpark on demand"),
    "storage": (0.02, 0.025, "$ per GB-month", "object storage"),
}


@dataclass(frozen=True)
class Scenario:
    """A collection: documents, training queries, and (query, positive) rows; texts of 56 words."""

    name: str
    documents: float
    queries: float
    rows: float
    cores: int
    gpus: int
    memory: int
    machines: int


MARCO: Final = Scenario("MS MARCO", 8_841_823, 502_939, 532_761, 16, 1, 128, 1)
BILLION: Final = Scenario("1 B passages", 1e9, 1e7, 1.06e7, 1024, 16, 8192, 32)
# Of a passage and a query of MS MARCO, on average.
CHARACTERS: Final = 335
WORDS: Final = 56
WORDS_PER_QUERY: Final = 6


class Constants:
    """What was measured, per document, query, slot and row, for passages of 56 words."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.runs, self.growth, self.quality = result["runs"], result["growth"], result["quality"]
        full, vectors = self.runs["medquad_static"], self.runs["medquad_minilm"]
        self.slots = full["blocks"]["candidates"]["slots"] / full["queries"]
        self.slots_200 = full["slots_at_depth"]["200"]
        self.read, self.kin = (self.slope("ingest", f"{name}_bytes") for name in ("read", "kin"))
        self.read_s, self.kin_s = (self.slope("ingest", f"{name}_seconds") for name in ("read", "kin"))
        self.index_build, self.index_file = (self.slope("bm25", f"{name}_bytes") for name in ("build", "file"))
        self.index_s, self.search_s = (self.slope("bm25", f"{name}_seconds") for name in ("build", "search"))
        self.bm25_rank_s, self.flat_s = self.slope("bm25", "rank_seconds"), self.slope("flat", "search_seconds")
        self.dense_rank_s = self.slope("flat", "rank_seconds")
        self.terms, self.terms_kept = self.slope("terms", "bytes"), self.slope("terms", "kept_bytes")
        self.terms_s, self.groups = self.slope("terms", "seconds"), self.slope("groups", "bytes")
        self.groups_s = self.slope("groups", "seconds_per_shard") / 512
        self.vector, self.vector_file = self.slope("store", "vector_bytes"), self.slope("store", "vector_file_bytes")
        self.judgment_file = self.slope("store", "judgment_file_bytes")
        nodes, slots = full["nodes"], full["blocks"]["candidates"]["slots"]
        row_slots = full["blocks"]["selection"]["slots"]
        self.merge_s = nodes["merge_candidates"]["seconds"] / slots
        self.evidence_s = nodes["judge_by_evidence"]["seconds"] / slots
        self.believe_s = nodes["judge_candidates"]["seconds"] / slots
        self.rate_s = nodes["rate_candidates"]["seconds"] / row_slots
        self.select_s = (nodes["select_negatives"]["seconds"] + nodes["summarise_selection"]["seconds"]) / row_slots
        scale = CHARACTERS / full["characters_per_document"]
        self.row_s = scale * sum(nodes[n]["seconds"] for n in ("make_training_rows", "export_pairs")) / full["rows"]
        grown = nodes["export_pairs"]["peak_mib"] - nodes["select_negatives"]["peak_mib"]
        self.row = scale * grown * 2**20 / full["rows"]
        tokens = vectors["documents"] * vectors["tokens_encoded_per_document"]
        tokens += vectors["queries"] * MEDQUAD_QUERY_WORDS * TOKENS_PER_WORD
        self.tokens_per_core_s = tokens / vectors["nodes"]["encode_collection"]["seconds"] / 2
        judged = self.runs["scifact_2_1"]
        self.pairs_per_core_s = judged["judged_pairs"] / judged["nodes"]["judge_candidates"]["seconds"] / 2
        self.pq_code_s = self.quality["ivfpq_search_seconds"] / (self.quality["documents"] / 8)
        self.text = max(r["bytes"]["corpus.parquet"] / r["documents"] / r["characters_per_document"] for r in self.all)
        self.row_file = CHARACTERS * max(self.per_text(r, "training_rows.parquet", UNCERTAIN) for r in self.all)
        self.export_file = CHARACTERS * max(self.per_text(r, "negatives", 0) for r in self.all)

    @property
    def all(self) -> list[dict[str, Any]]:
        """All runs."""
        return list(self.runs.values())

    @staticmethod
    def per_text(run: dict[str, Any], name: str, more: int) -> float:
        """Bytes of an artifact per character of the texts it holds, times the texts of a row of the default recipe."""
        texts = 1 + more + run["negatives"]["count"] / run["rows"]
        characters = run["rows"] * texts * run["characters_per_document"]
        return float(run["bytes"][name] / characters * (1 + more + NEGATIVES))

    def slope(self, part: str, name: str) -> float:
        """Growth with one more document, between the smallest and the largest corpus."""
        first, *_, last = self.growth[part]
        return float((last[name] - first[name]) / (last["documents"] - first["documents"]))

    def per_slot(self, name: str) -> float:
        """Bytes of a slot: ids and ranks as 4 bytes, since those of a large corpus do not repeat; else as measured."""
        block = self.runs["medquad_static"]["blocks"][name]
        return float((block["bytes"] - block["id_and_rank_bytes"]) / block["slots"] + 4 * block["ids_and_ranks"])


def assumed(name: str) -> Range:
    return Range(*ASSUMED[name][:2])


# --- tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def size(value: float) -> str:
    for unit, of in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= of:
            return f"{short(value / of)} {unit}"
    return f"{value:.0f} B"


def short(value: float) -> str:
    if value >= 100:
        return f"{float(f'{value:.2g}') if value < 1000 else float(f'{value:.3g}'):,.0f}"
    return f"{value:.2g}" if value >= 0.01 else "0" if value == 0 else "< 0.01"


def span(value: Range) -> str:
    low, high = short(value.low), short(value.high)
    return low if low == high else f"{low} – {high}"


def count(value: float) -> str:
    return f"{short(value / 1e9)} B" if value >= 1e9 else f"{short(value / 1e6)} M"


def tables(result: dict[str, Any]) -> dict[str, str]:
    """Return the tables of docs/scale.md by name."""
    found = Constants(result)
    return {
        "constants": constants(found),
        "limits": limits(found),
        "depth": depths(result),
        "sizes": sizes(found),
        "hours": hours(found),
        "plans": plans(found),
        "update": update(found),
        "assumed": assumptions(),
    }


def constants(c: Constants) -> str:
    """What was measured, and where: in growing corpora (2), or in a run."""
    grown, full, kept = "growth", "medquad_static", c.quality
    blocks = [f"{c.per_slot(name):.0f} {name}" for name in BLOCKS]
    passages = c.tokens_per_core_s / (WORDS * TOKENS_PER_WORD)
    groups = f"{c.groups:.0f} B / document and worker, {c.groups_s * 1e9 * 512:.0f} ns / document and shard"
    vector = f"{c.vector_file:,.0f} B on disk, {c.vector:,.0f} B in memory when written and read"
    rows = [
        ("reading, checking, fingerprint", f"{c.read:,.0f} B and {c.read_s * 1e6:.0f} µs / document", grown),
        ("near-duplicates, with the former", f"{c.kin:,.0f} B and {c.kin_s * 1e6:.0f} µs / document", grown),
        ("BM25 index: build", f"{c.index_build:,.0f} B and {c.index_s * 1e6:.0f} µs / document", grown),
        ("BM25 index: file", f"{c.index_file:,.0f} B / document", grown),
        ("BM25 search, 1,000 deep", f"{c.search_s * 1e9:.1f} ns / (query, document)", grown),
        ("exact BM25 ranks of 1,086 candidates", f"{c.bm25_rank_s * 1e9:.1f} ns / (query, document)", grown),
        ("exact dense search (FAISS flat, 384)", f"{c.flat_s * 1e9:.0f} ns / (query, document)", grown),
        ("exact dense ranks of 1,086 candidates", f"{c.dense_rank_s * 1e9:.0f} ns / (query, document)", grown),
        ("groups of duplicates", groups, grown),
        ("terms for evidence", f"{c.terms:,.0f} B at most, {c.terms_kept:.0f} B kept / document", grown),
        ("store: a vector of 384", vector, grown),
        ("store: a judgment", f"{c.judgment_file:.0f} B on disk", grown),
        ("slots / query", f"{c.slots:,.0f}; {c.slots_200:,.0f} with BM25 200 deep", full),
        ("B / slot, ids and ranks as 4 B", ", ".join(blocks), full),
        ("merging; evidence", f"{c.merge_s * 1e6:.2f}; {c.evidence_s * 1e6:.2f} µs / slot", full),
        ("rating; selecting and summary", f"{c.rate_s * 1e6:.2f}; {c.select_s * 1e6:.2f} µs / slot", full),
        ("training rows, scaled by characters", f"{c.row:,.0f} B in memory and {c.row_s * 1e6:.0f} µs / row", full),
        (
            "encoding, MiniLM",
            f"{c.tokens_per_core_s:,.0f} tokens ({passages:.0f} passages) / core-second",
            "medquad_minilm",
        ),
        ("cross-encoder of 3 layers, with training", f"{c.pairs_per_core_s:.0f} pairs / core-second", "scifact_2_1"),
        (
            "share of the 100 nearest kept by float16; int8; IVF-PQ of 96 B",
            f"{kept['float16']:.4f}; {kept['int8']:.4f}; {kept['ivfpq']:.3f} of {kept['documents']:,} documents",
            "medquad_minilm",
        ),
    ]
    return table(("constant", "measured", "where"), rows)


def limits(c: Constants) -> str:
    """Documents, or rows, that fit the memory of one machine: (GB − base) / bytes."""
    vector = 4.0 * WIDTH

    def merging(workers: int) -> float:
        return vector * (2 + workers) + c.index_file + c.groups * workers + c.read

    stages = [
        ("near-duplicates", "`corpus/related.py`: words, shingles, signatures as Python lists", c.kin, c.kin),
        ("encoding", "`store/cache.py`: all vectors as bytes, twice; texts", c.vector + c.read, c.vector + c.read),
        ("BM25 index", "`retrieval/bm25.py`: tokens as lists; texts", c.index_build + c.read, c.index_build + c.read),
        ("merging", "`retrieval/dense.py`: each worker a copy of the flat index", merging(2), merging(8)),
        ("evidence", "`retrieval/terms.py`: terms of all documents", *[c.terms + c.read + vector] * 2),
    ]
    rows = [
        (name, what, " / ".join(dict.fromkeys((size(small), size(large)))), count((24 - BASE_GB) * GB / small),
         count((128 - BASE_GB) * GB / large))
        for name, what, small, large in stages
    ]  # fmt: skip
    rows.append(
        ("training rows", "`selection/rows.py`: texts of all negatives", f"{size(c.row)} / row",
         f"{count((24 - BASE_GB) * GB / c.row)} rows", f"{count((128 - BASE_GB) * GB / c.row)} rows")
    )  # fmt: skip
    held = [min((gb - BASE_GB) * GB / stage[which] for stage in stages) for gb, which in ((24, 2), (128, 3))]
    asked = [(gb - BASE_GB) * GB / c.row for gb in (24, 128)]
    both = [f"**{count(n)} × {count(q)}**" for n, q in zip(held, asked, strict=True)]
    rows.append(("**all: documents × rows**", "", "", *both))
    return table(("stage", "what it holds", "per document", "24 GB, 2 workers", "128 GB, 8 workers"), rows)


def depths(result: dict[str, Any]) -> str:
    """Which selected negatives a shallower BM25 search loses: of the runs, and of recipes applied to one of them."""
    found = [(name, run["recipe"], run["negatives"]) for name, run in result["runs"].items()]
    found += [("medquad_3000", recipe, chosen) for recipe, chosen in result["recipes"].items()]
    rows = []
    for name, recipe, chosen in found:
        lost = [f"{100 * chosen['lost_at_depth'][depth]:.2f} %" for depth in ("500", "200", "100")]
        ranks = f"{100 * chosen['bm25_rank_beyond']['200']:.0f} %"
        rows.append((name, recipe, f"{chosen['count']:,}", ranks, *lost))
    head = ("candidates of", "recipe", "negatives", "of BM25 rank > 200", "lost at 500", "lost at 200", "lost at 100")
    return table(head, rows)


def artifacts(c: Constants, s: Scenario) -> dict[str, tuple[float, float]]:
    """Bytes of every artifact: as today, and after the change."""
    slots, narrow = s.queries * c.slots, s.queries * c.slots_200
    rows = s.rows / s.queries
    # Changed: 4 bytes of id, and 16 measurements and verdicts as float16, written once and not by every stage.
    once = narrow * rows * (4 + 2 * 16)
    blocks = {
        name: (slots * c.per_slot(name), 0.0) for name in ("candidates", "evidence_candidates", "judged_candidates")
    }
    blocks |= {name: (slots * rows * c.per_slot(name), 0.0) for name in ("rated_candidates", "selection")}
    blocks["selection"] = (blocks["selection"][0], once)
    texts = s.documents * CHARACTERS * c.text
    return {
        "corpus": (texts, texts),
        "bm25_index": (s.documents * c.index_file,) * 2,
        "document_embeddings": (s.documents * 4 * WIDTH, s.documents * 2 * WIDTH),
        "query_embeddings": (s.queries * 4 * WIDTH, s.queries * 2 * WIDTH),
        "dense_index": (s.documents * 4 * WIDTH, s.documents * (WIDTH / 4 + 8)),
        "bm25_candidates": (s.queries * 1000 * c.per_slot("bm25_candidates"), 0.0),
        **blocks,
        "training_rows": (s.rows * c.row_file, s.rows * (1 + NEGATIVES + UNCERTAIN) * 24),
        "negatives (JSON lines)": (s.rows * c.export_file,) * 2,
        "store: vectors": ((s.documents + s.queries) * c.vector_file, (s.documents + s.queries) * 16),
        "store: judgments": (s.queries * (JUDGED + s.rows / s.queries) * c.judgment_file,) * 2,
    }


def sizes(c: Constants) -> str:
    found = [artifacts(c, s) for s in (MARCO, BILLION)]
    rows = []
    for name in found[0]:
        rows.append((name, *(size(value) if value else "–" for each in found for value in each[name])))
    sums = [sum(each[name][way] for name in each) for each in found for way in (0, 1)]
    rows.append(("**sum**", *(f"**{size(value)}**" for value in sums)))
    return table(("artifact", "MS MARCO today", "changed", "1 B today", "changed"), rows)


class Stage(NamedTuple):
    """Core-hours and GPU-hours of a stage, and whether one process does it today."""

    today: float
    core: Range
    gpu: Range = NONE
    serial: bool = False
    # Share of `today` that 1 % new documents and queries cost today, and of `core` and `gpu` after the change.
    update_today: float = 1.0
    update_changed: float = 0.02


def stages(c: Constants, s: Scenario) -> dict[str, Stage]:
    """Hours of each stage: as today on cores alone, and after the change."""
    n, q, slots = s.documents, s.queries, s.queries * c.slots
    row_slots, narrow = s.rows * c.slots, s.queries * c.slots_200
    row_narrow, shards = s.rows * c.slots_200, math.ceil(n / SHARD_DOCUMENTS)
    cells = 4 * math.sqrt(n)
    codes = n * (64 if n < 1e8 else 128) / cells
    tokens = (n * WORDS + q * WORDS_PER_QUERY) * TOKENS_PER_WORD
    pairs = q * JUDGED + s.rows
    training = (256 * cells * 10 + n) * cells * WIDTH * 2
    small = n * (c.search_s if shards == 1 else 0.0)
    search = Range(small, small) if small else assumed("service").times(n / SHARD_DOCUMENTS)
    gpu, judge, flops = assumed("gpu_encode"), assumed("gpu_judge"), assumed("gpu_flops")

    def both(seconds: float) -> Range:
        return Range(seconds / HOUR, seconds / HOUR)

    def per(work: float, rate: Range) -> Range:
        return Range(work / rate.high / HOUR, work / rate.low / HOUR)

    # An update looks at all documents, mines 1 % of the queries, and reads and writes the kept rows once.
    gathering, telling = slots * c.evidence_s, n * c.terms_s
    evidence_again = (0.01 * gathering + telling) / (gathering + telling)
    rows_again = 0.01 + c.believe_s / (c.rate_s + c.select_s + c.believe_s)
    return {
        "reading, near-duplicates": Stage(
            n * (c.read_s + c.kin_s) / HOUR, both(n * (c.read_s + c.kin_s)), serial=True, update_changed=0.01
        ),
        "BM25 index": Stage(n * c.index_s / HOUR, both(n * c.index_s), serial=True, update_changed=0.01),
        "BM25 search": Stage(
            q * n * (c.search_s + c.groups_s) / HOUR, search.times(q / HOUR), update_today=0.01
        ),
        "encoding": Stage(
            tokens / c.tokens_per_core_s / HOUR, NONE, per(n + q / 5, gpu), update_today=0.01, update_changed=0.01
        ),
        "dense index": Stage(0.0, NONE, per(training, flops), serial=True),
        "dense search": Stage(
            q * n * c.flat_s / HOUR, Range(ASSUMED["pq_code"][0], c.pq_code_s).times(q * codes / HOUR),
            update_today=0.01,
        ),
        "exact ranks": Stage(q * n * (c.bm25_rank_s + c.dense_rank_s) / HOUR, NONE, update_today=0.01),
        "merging": Stage(slots * c.merge_s / HOUR, both(narrow * c.merge_s), update_today=0.01),
        "evidence": Stage(
            (gathering + telling) / HOUR, both(narrow * c.evidence_s + telling), update_today=evidence_again
        ),
        "cross-encoder (if the recipe asks)": Stage(
            pairs / c.pairs_per_core_s / HOUR, NONE, per(pairs, judge), update_today=0.01, update_changed=0.01
        ),
        "rating, selecting": Stage(
            row_slots * (c.rate_s + c.select_s + c.believe_s) / HOUR,
            both(row_narrow * (c.rate_s + c.select_s)), update_today=rows_again, update_changed=1.0,
        ),
        "training rows": Stage(s.rows * c.row_s / HOUR, both(s.rows * c.row_s), serial=True, update_changed=1.0),
    }  # fmt: skip


def hours(c: Constants) -> str:
    found = [stages(c, s) for s in (MARCO, BILLION)]
    rows = []
    for name in found[0]:
        cells = []
        for each in found:
            stage = each[name]
            cells += [short(stage.today), span(stage.core), span(stage.gpu)]
        rows.append((name, *cells))
    sums: list[str] = []
    for each in found:
        core, gpu = total(each)
        sums += [f"**{short(sum(stage.today for stage in each.values()))}**", f"**{span(core)}**", f"**{span(gpu)}**"]
    rows.append(("**sum**", *sums))
    head = (
        "stage",
        "MS MARCO today, core-h",
        "changed, core-h",
        "GPU-h",
        "1 B today, core-h",
        "changed, core-h",
        "GPU-h",
    )
    return table(head, rows)


def total(found: dict[str, Stage]) -> tuple[Range, Range]:
    core = gpu = NONE
    for stage in found.values():
        core, gpu = core + stage.core, gpu + stage.gpu
    return core, gpu


def plans(c: Constants) -> str:
    columns = [planned(c, s) for s in (MARCO, BILLION)]
    return table(
        ("", *(s.name for s in (MARCO, BILLION))), [(name, *(each[name] for each in columns)) for name in columns[0]]
    )


def planned(c: Constants, s: Scenario) -> dict[str, str]:
    found = stages(c, s)
    today, (core, gpu) = sum(stage.today for stage in found.values()), total(found)
    serial = sum(stage.today for stage in found.values() if stage.serial)
    busy = assumed("busy")
    cluster = f"{s.machines} × {s.cores // s.machines} cores, {s.memory // s.machines} GB; {s.gpus} GPU"
    waits = [
        core.times(1 / s.cores / busy.low, 1 / s.cores / busy.high),
        gpu.times(1 / s.gpus / busy.low, 1 / s.gpus / busy.high),
    ]
    wall = waits[0] + waits[1]
    price = core.by(assumed("core_hour")) + gpu.by(assumed("gpu_hour"))
    paid = price.times(1 / busy.low, 1 / busy.high)
    stored = sum(changed for _, changed in artifacts(c, s).values())
    shards = math.ceil(s.documents / SHARD_DOCUMENTS)
    worker = min(s.documents, SHARD_DOCUMENTS) * c.index_file
    return {
        "documents; training queries; rows": "; ".join(count(v) for v in (s.documents, s.queries, s.rows)),
        "shards of 512 queries": f"{math.ceil(s.queries / 512):,}",
        "today: memory of ingestion": size(s.documents * c.kin),
        "today: memory of a merging worker": size(s.documents * (4 * WIDTH + c.groups)),
        "today: memory of training rows": size(s.rows * c.row),
        "today: core-hours, of them in one process": f"{short(today)}, {short(serial)}",
        "today: hours on the cores below": short(serial + (today - serial) / s.cores),
        "cluster of the changed design": cluster,
        "BM25 shards of 10 M passages": str(shards),
        "memory: a BM25 shard": size(worker),
        "memory: IVF-PQ codes and ids": size(s.documents * (WIDTH / 4 + 8)),
        "memory: terms for evidence, in all": size(s.documents * c.terms_kept),
        "changed: core-hours; GPU-hours": f"{span(core)}; {span(gpu)}",
        "changed: hours by the clock": span(wall),
        "changed: cost of a full run, $": span(paid),
        "changed: artifacts, and $ a month for them": f"{size(stored)}, {span(assumed('storage').times(stored / GB))}",
    }


def update(c: Constants) -> str:
    rows = []
    for s in (MARCO, BILLION):
        found = stages(c, s)
        today = sum(stage.today * stage.update_today for stage in found.values())
        whole = sum(stage.today for stage in found.values())
        core = gpu = NONE
        for name, stage in found.items():
            share = 0.0 if name == "dense index" else stage.update_changed
            core, gpu = core + stage.core.times(share), gpu + stage.gpu.times(share)
        all_core, _ = total(found)
        share_today = f"{short(today)} of {short(whole)} ({100 * today / whole:.0f} %)"
        rows.append((s.name, share_today, f"{span(core)} of {span(all_core)}", span(gpu)))
    return table(("1 % new", "today, core-h", "changed, core-h", "changed, GPU-h"), rows)


def assumptions() -> str:
    rows = [
        (name, *("measured" if math.isnan(value) else f"{value:,g}" for value in (low, high)), unit, why)
        for name, (low, high, unit, why) in ASSUMED.items()
    ]
    return table(("assumed", "low", "high", "unit", "on what"), rows)
