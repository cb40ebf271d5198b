"""What a whole run leaves behind: nothing pickled, no secret, and no text of the collection that a browser obeys."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lxml.html
import pytest
from tests.e2e.conftest import write_beir
from tests.security import pickles

# In no vocabulary and no text of ours.
MARK = "Zq7Leak"
SECRETS = {
    "OPENAI_API_KEY": f"sk-{MARK}-0a1b2c3d4e5f",
    "AWS_ACCESS_KEY_ID": f"AKIA{MARK}0000001",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}/aws+secret/0123456789abcdef",
    "HF_TOKEN": f"hf_{MARK}TokenOfTheHub",
    "MLFLOW_TRACKING_PASSWORD": f"{MARK}-password-of-tracking",
    "HTTPS_PROXY": f"http://{MARK}-user:{MARK}-proxy-password@127.0.0.1:9",
}
PAYLOADS = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "</style><style>*{display:none}</style>",
    "</title><svg onload=alert(4)>",
    "<!--",
    "]]>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(5)",
    "&lt;script&gt;alert(6)&lt;/script&gt;",
    "\\u003cscript\\u003ealert(7)",
    "=HYPERLINK(1)",
    "$(touch owned) `touch owned` ; touch owned",
)
IDS = (
    "../../etc/passwd",
    "/etc/cron.d/owned",
    "..\\..\\owned",
    "%2e%2e%2fowned",
    "CON",
    "nul.txt",
    "x" * 300,
    "--help",
    "-rf",
    ".",
    "..",
    "~root",
    "a\u202eb",
    "$(touch owned)",
    "*",
    "'",
    '"',
    "|",
    "q;w",
    "a:b",
)
# Names the window of a terminal; ids with such characters are refused.
COMMAND = "\x1b]0;owned\x07"
WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heath",
    "islet",
    "jetty",
    "knoll",
    "marsh",
)


def write_collection(folder: Path) -> None:
    """Write a collection whose ids and texts are all hostile, in the layout of BEIR."""
    size = 60
    names = [IDS[i] if i < len(IDS) else f"{PAYLOADS[i % len(PAYLOADS)]} {i}" for i in range(size)]

    def text(i: int) -> str:
        return (
            f"{PAYLOADS[i % len(PAYLOADS)]} the {WORDS[i % 12]} of the {WORDS[i * 7 % 11]} number"
            f" {i}{COMMAND}"
        )

    documents, queries = (
        [
            {
                "_id": each,
                "text": f"{start} {text(i)}",
                "title": text(i),
                "metadata": {"source": PAYLOADS[i % 3]},
            }
            for i, each in enumerate(names)
        ]
        for start in ("document", "which")
    )
    rows, head = [f"{name}\t{name}\t1" for name in names], "query-id\tcorpus-id\tscore"
    write_beir(
        folder,
        documents,
        queries,
        {"train": [head, *rows[:40]], "dev": [head, *rows[40:50]], "test": [head, *rows[50:]]},
    )


@dataclass(frozen=True)
class Hostile:
    """A run on that collection with secrets in its environment."""

    place: Any
    done: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any) -> Hostile:
    folder = tmp_path_factory.mktemp("hostile") / "around" / "the place"
    place = new_place(folder)
    write_collection(folder / "collection")
    parameters = f"collection=beir:{folder}/collection,encoder=static"
    done = kedro("run", "--params", parameters, data_root=place.data, store=place.store, **SECRETS)
    assert done.returncode == 0, done.stdout + done.stderr
    return Hostile(place, done, folder)


def files(*roots: Path) -> Iterator[Path]:
    for root in roots:
        yield from (path for path in root.rglob("*") if path.is_file())


def test_nothing_that_a_run_leaves_is_pickled(whole_run: Any) -> None:
    walked = list(files(whole_run.data, whole_run.store))
    kinds = {path.suffix for path in walked}
    assert {".npy", ".parquet", ".safetensors", ".db", ".mdb", ".json", ".html"} <= kinds
    assert any("tracking/artifacts" in path.as_posix() for path in walked)
    assert {str(path): found for path in walked if (found := pickles.found_in(path))} == {}


def leaks(*roots: Path) -> list[Path]:
    return [
        path for path in files(*roots) if MARK.encode() in path.read_bytes() or MARK in path.name
    ]


@pytest.mark.rare
def test_no_secret_of_the_environment_is_left_or_shown(hostile: Hostile) -> None:
    assert MARK not in hostile.done.stdout + hostile.done.stderr
    assert len(list(files(hostile.place.data, hostile.place.store))) > 50
    assert leaks(hostile.place.data, hostile.place.store) == []


@pytest.mark.rare
def test_ids_of_the_collection_name_no_files(hostile: Hostile) -> None:
    inside = {path.name for path in hostile.folder.iterdir()}
    assert inside == {"data", "store", "collection"}
    assert [path.name for path in hostile.folder.parent.iterdir()] == [hostile.folder.name]
    names = [
        path.relative_to(hostile.folder).as_posix()
        for path in files(hostile.place.data, hostile.place.store)
    ]
    assert not [name for name in names if "owned" in name or "passwd" in name or "script" in name]
    assert not Path("/etc/cron.d/owned").exists()


@pytest.mark.rare
def test_the_report_shows_texts_and_runs_none(hostile: Hostile) -> None:
    (path,) = hostile.place.versions("reporting", "report.html")
    page = path.read_text(encoding="utf-8")
    tree = lxml.html.fromstring(page)
    for element in tree.iter():
        if not isinstance(element.tag, str):
            assert "alert" not in (element.text or ""), "a comment was opened"
            continue
        assert element.tag not in ("svg", "img", "iframe", "object", "embed", "form", "base"), (
            element.tag
        )
        assert element.tag != "a" or element.get("href", "").startswith("#section-"), (
            "a link leaves the page"
        )
        for name, value in element.attrib.items():
            assert not name.startswith("on"), (element.tag, name)
            assert "javascript:" not in value, (element.tag, name)
            assert name != "style" or "url(" not in value
    scripts = tree.xpath("//script")
    data = [script for script in scripts if script.get("type") == "application/json"]
    packed = [script for script in scripts if script.get("type") == "text/plain"]
    assert [script.get("id") for script in packed] == ["plotly-script"]
    assert not [script for script in packed if not re.fullmatch(r"[A-Za-z0-9+/=]*", script.text)]
    assert len(scripts) == len(data) + len(packed) + 1, "what draws plots"
    assert not [script for script in data if "<" in script.text]
    assert all(json.loads(script.text) for script in data)
    assert len(tree.xpath("//style")) == 1
    policy = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy, "a page that was got into could still fetch nothing"
    assert policy[0].startswith("default-src 'none'")


@pytest.mark.rare
def test_the_console_is_given_no_commands(hostile: Hostile, in_process: Any) -> None:
    rows = hostile.place.table("selection", "training_rows.parquet")
    query = next(row.query_id for row in rows.itertuples() if COMMAND in row.query)
    for arguments in (["anmi", "explain", query, "--doc", query], ["anmi", "explain", "\x1b[2J"]):
        found = in_process(hostile.place, *arguments)
        assert "\x1b" not in found.output, arguments
        assert "\\x1b" in found.output, arguments


@pytest.mark.rare
def test_exports_have_names_of_ours_whatever_the_ids(
    hostile: Hostile, in_process: Any, tmp_path: Path
) -> None:
    done = in_process(hostile.place, "anmi", "export", "n-tuple", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    written = list(files(tmp_path))
    # Where a spreadsheet opens a file by its name, formulas in it would run.
    assert {path.name for path in written} <= {
        "README.md",
        "train.parquet",
        "train.jsonl",
        "part_001.jsonl",
    }
    assert not [path for path in written if pickles.found_in(path)]


def test_a_secret_in_a_parameter_is_refused_and_never_repeated(
    new_place: Any, kedro: Any, tmp_path: Path
) -> None:
    place = new_place(tmp_path)
    parameters = f"collection=beir:https://{MARK}-user:{MARK}-password@127.0.0.1/x"
    done = kedro("run", "--params", parameters, data_root=place.data, store=place.store, **SECRETS)
    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert 'parameter "collection" holds an address with credentials' in told
    assert MARK not in told
    assert leaks(place.data) == []
