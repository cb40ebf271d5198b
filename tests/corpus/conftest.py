"""A small collection on disk that each test damages in its own way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_WORDS = """amber birch cedar delta ember fjord grove heath
islet jetty knoll lagoon marsh north oasis prairie"""
WORDS = _WORDS.split()


class Folder:
    """A BEIR folder whose rows can be changed before it is written."""

    def __init__(
        self, path: Path, documents: int = 40, train: float = 0.6, dev: float = 0.2
    ) -> None:
        self.path = path
        self.documents: list[Any] = []
        self.queries: list[Any] = []
        for i in range(documents):
            text = f"the {WORDS[i % 16]} of the {WORDS[i * 7 % 16]} number {i}"
            self.documents.append({"_id": f"d{i}", "title": f"Title {i}", "text": text})
            self.queries.append({"_id": f"q{i}", "text": f"which {WORDS[i % 16]} has number {i}"})
        first, second = int(documents * train), int(documents * (train + dev))
        labels = [f"q{i}\td{i}\t{1 + (i >= second)}" for i in range(documents)]
        splits = labels[:first], labels[first:second], labels[second:]
        self.qrels = dict(zip(("train", "dev", "test"), splits, strict=True))

    def write(self, *, newline: str = "\n", prefix: bytes = b"") -> str:
        (self.path / "qrels").mkdir(parents=True, exist_ok=True)
        self._put("corpus.jsonl", self.documents, newline, prefix)
        self._put("queries.jsonl", self.queries, newline, prefix)
        for split, labels in self.qrels.items():
            rows = ["query-id\tcorpus-id\tscore", *labels]
            self._put(f"qrels/{split}.tsv", rows, newline, prefix)
        return f"beir:{self.path}"

    def _put(self, name: str, rows: list[Any], newline: str, prefix: bytes) -> None:
        lines = [
            row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows
        ]
        data = "".join(line + newline for line in lines).encode("utf-8", "surrogatepass")
        (self.path / name).write_bytes(prefix + data)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "small")


class GraphFolder(Folder):
    """A folder with a graph of ten cities in three countries one folder above; each document states facts of one city.

    Documents 20 to 39 state what documents 0 to 19 do, and how many people live there as well.
    """

    BASE = "http://x.org/r/"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        cities = [f"{self.BASE}City_{i}" for i in range(10)]
        countries = [f"{self.BASE}Country_{i}" for i in range(3)]
        self.entities: list[Any] = [
            {"uri": uri, "label": f"City {i}", "types": ["city"], "description": f"The city {i}."}
            for i, uri in enumerate(cities)
        ]
        self.entities += [
            {"uri": uri, "label": f"Country {i}", "types": ["country"]}
            for i, uri in enumerate(countries)
        ]
        self.triples = [
            f"{uri}\tcountry\t{countries[i % 3]}\ttrain" for i, uri in enumerate(cities)
        ]
        self.triples += [f"{uri}\tpeople\t{i}000\tdev" for i, uri in enumerate(cities)]
        self.triples += [f'{uri}\tmotto\t"Motto {i}"\ttest' for i, uri in enumerate(cities)]
        for i, document in enumerate(self.documents):
            triples = [[f"City_{i % 10}", "country", f"Country_{i % 10 % 3}"]]
            document["metadata"] = {"triples": triples}
            if i >= 20:
                triples.append([f"City_{i % 10}", "people", f"{i % 10}000"])

    def write(
        self, *, newline: str = "\n", prefix: bytes = b"", place: str = "..", tables: bool = True
    ) -> str:
        super().write(newline=newline, prefix=prefix)
        if tables:
            self._put(f"{place}/entities.jsonl", self.entities, newline, prefix)
            rows = ["head\trelation\ttail\tsplit", *self.triples]
            self._put(f"{place}/triples.tsv", rows, newline, prefix)
        return f"kg:{self.path}"


@pytest.fixture
def graph_folder(tmp_path: Path) -> GraphFolder:
    return GraphFolder(tmp_path / "world" / "small")
