"""The notebooks, run in a kernel of their own as a reader would, without a word of the output kept in git."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLOT: Final = "application/vnd.plotly.v1+json"
COLOURED: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Read:
    """What a reader sees below the cells of a notebook that ran."""

    outputs: list[Any]

    @property
    def figures(self) -> dict[str, Any]:
        """Plots by their title."""
        found = [output["data"][PLOT] for output in self.outputs if PLOT in output.get("data", {})]
        return {plot["layout"].get("title", {}).get("text", ""): plot for plot in found}

    @property
    def text(self) -> str:
        """All that was printed or shown as text."""
        # A busy kernel sends one printed line in pieces.
        texts = (
            out.get("text") or f"{out.get('data', {}).get('text/plain', '')}\n"
            for out in self.outputs
        )
        return COLOURED.sub("", "".join(texts))

    def number(self, before: str) -> float:
        """The number that follows some words."""
        found = re.search(re.escape(before) + r"\s*(-?[\d,]+(?:\.\d+)?)", self.text)
        assert found, f"{before!r} is not in {self.text[-2000:]}"
        return float(found[1].replace(",", ""))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_there(path: Path) -> None:
    """Notebooks run at night; a name that has moved is noticed at once."""
    cells = nbformat.read(path, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    for line in re.findall(r"^(?:from|import) [^\n(]*(?:\([^)]*\))?", code, re.MULTILINE):
        exec(line, {})


@pytest.fixture
def run(tmp_path: Path, new_place: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Read]:
    """Run a notebook, or cells, from the folder of notebooks, as Jupyter does, on data and a store of the test."""
    place = new_place(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MLFLOW", "ANMI", "KEDRO"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANMI_DATA_ROOT", str(place.data))
    monkeypatch.setenv("ANMI_STORE", str(place.store))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))

    def executed(name: str, *cells: str) -> Read:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        made = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        notebook = made if cells else nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(path.parent)}}
        NotebookClient(notebook, timeout=900, resources=resources).execute()
        read = Read([output for cell in notebook.cells for output in cell.get("outputs", [])])
        assert not [output for output in read.outputs if output["output_type"] == "error"]
        assert "Traceback" not in read.text
        for plot in read.figures.values():
            assert any(len(trace.get("x", trace.get("z", []))) for trace in plot["data"])
        return read

    return executed


def values(array: Any) -> list[Any]:
    """Return what an axis of a plot holds; plotly packs numbers."""
    if not isinstance(array, dict):
        return list(array)
    packed: list[Any] = np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).tolist()
    return packed


def along(plot: Any, name: str) -> list[Any]:
    """Return the values of one trace on the horizontal axis."""
    (trace,) = [trace for trace in plot["data"] if trace["name"] == name]
    return values(trace["x"])


def test_each_is_valid_and_holds_no_outputs() -> None:
    assert len(NOTEBOOKS) == 6
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        nbformat.validate(notebook)
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5), path.name
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert len(code) > 4, path.name
        assert not [cell for cell in code if cell["outputs"] or cell["execution_count"]], path.name
        assert "/tmp" not in text and "/home" not in text, path.name
        words = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
        headings = [line[:2] for lines in words for line in lines if re.match(r"#\s|#$", line)]
        # Text once stood behind a comment's mark, which Jupyter draws as a heading for every line.
        assert headings == ["# "], path.name


def test_the_page_lists_each_with_what_it_shows() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert {*listed} == {path.stem for path in NOTEBOOKS}


@pytest.mark.rare
def test_quick_start(run: Callable[..., Read]) -> None:
    read = run("quick_start")
    plot = read.figures["Retrieval quality of each system"]
    assert {trace["name"] for trace in plot["data"]} == {
        "BM25",
        "zero-shot",
        "network, untrained",
        "BM25 + network, untrained",
        "anmi",
        "hybrid",
    }
    assert "search_index" in read.text
    # Behind the name each part of the search says its rank.
    hits = re.findall(r"^(\d)\. (\S+)  \(\w+ (?:\d|–)", read.text, flags=re.MULTILINE)
    assert [rank for rank, _ in hits] == list("1234512345")
    # The documentation is searched, so what stands first moves with every sentence of it.
    assert [document for _, document in hits[:5] if document.startswith("judges-")]


@pytest.mark.rare
def test_the_page_shows_what_runs(run: Callable[..., Read]) -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    cells = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    read = run("page", "%cd ..", *cells)
    assert "Hit(" in read.text
    assert "Retrieval quality of each system" in read.figures


@pytest.mark.rare
def test_why_hard_negatives_hurt(run: Callable[..., Read]) -> None:
    read = run("why_hard_negatives_hurt")
    (bars,) = read.figures["False negatives by rank"]["data"]
    rates = values(bars["y"])
    assert rates[0] > 2 * rates[-1], "the nearer, the dirtier"
    recipes = {trace["name"] for trace in read.figures["False negatives against hardness"]["data"]}
    assert {"random", "naive_top", "nv_retriever", "clean_top"} <= recipes
    assert read.number("naive_top:") > read.number("clean_top:")
    assert "What moved the judge" in read.figures


@pytest.mark.rare
def test_own_data_and_model(run: Callable[..., Read]) -> None:
    read = run("own_data_and_model")
    plot = read.figures["Retrieval quality of each system"]
    assert along(plot, "anmi")[0] > along(plot, "BM25")[0], "the words differ"
    assert re.search(r"^1 violin-Oslo\.txt", read.text, flags=re.MULTILINE)
    assert "{'query': 'query: ', 'document': 'passage: '}" in read.text


@pytest.mark.rare
@pytest.mark.data
def test_published_bm25_mining(
    run: Callable[..., Read], shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANMI_DATA", str(shared_data))
    read = run("published_bm25_mining")
    assert read.number("passed the filter:") > read.number("failed the filter:") > 0
    assert (
        "['query', 'positive_doc', 'hard_negatives', 'query_type', 'doc_type', 'source',"
        " 'language']" in read.text
    )
    (lines,) = re.findall(r"'part_sae4k_001.jsonl': '([\d,]+) lines'", read.text)
    samples = int(lines.replace(",", ""))
    assert samples >= read.number("passed the filter:")
    statistics = read.text.partition("\nsamples")[2]
    # A positive and seven negatives each.
    assert lines in statistics and f"{8 * samples:,}" in statistics
    assert statistics.count("7.00 / 7 / 7") == 2, "as in the report"
    assert "Consistency rate: the positive is among the first K of BM25" in read.figures


@pytest.mark.rare
@pytest.mark.data
def test_published_elo_mining(
    run: Callable[..., Read], shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANMI_DATA", str(shared_data))
    read = run("published_elo_mining")
    assert "Elo follows the scores: True" in read.text
    assert "the best four: [900, 850, 1050, 700]" in read.text, "as the report's own code has it"
    (zones,) = read.figures["Candidates by zone"]["data"]
    assert values(zones["x"]) == ["danger", "soft", "Goldilocks", "medium", "easy"]
    assert sum(values(zones["y"])) == pytest.approx(100)
    rows = read.number("rows with negatives:")
    assert 18 <= rows <= 24 and 5 < read.number("negatives a row:") <= 7
    assert 0.5 <= read.number("mean weight of a negative:") <= 1
    assert "9 steps in 3 epochs" in read.text
    assert read.number("mean change of a cosine:") > 0.01, "training moved the encoder"
    measured = re.findall(r"(?:mrr|recall)@10: before (\S+), after (\S+)", read.text)
    assert len(measured) == 2 and min(float(value) for pair in measured for value in pair) > 0.3


@pytest.mark.rare
def test_sparse_retriever(run: Callable[..., Read]) -> None:
    read = run("sparse_retriever")
    (title,) = [title for title in read.figures if title.startswith("Terms of ")]
    assert {trace["name"] for trace in read.figures[title]["data"]} == {"in the text", "added"}
    assert read.number("postings a query: BM25") > 0
    assert read.number("sum of the bars") == pytest.approx(read.number(", score"), abs=0.01)
