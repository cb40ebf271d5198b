"""A collection that nobody tuned on: descriptions of Debian packages, as a BEIR folder.

Query = the short description (over 3 words), document = the long one (over 29 words); packages that
share a short description answer the same query. Needs ``apt-get`` and a mirror. Written where
planted.py reads it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

import pandas as pd

from common import write_beir
from planted import DEBIAN

MOST_DOCUMENTS = 12_000
_DULL = re.compile(r"transitional|dummy|debug(ging)? symbols|metapackage", re.IGNORECASE)


def packages() -> dict[str, tuple[str, str]]:
    """Return short and long description of every package, by name."""
    with tempfile.TemporaryDirectory() as lists:
        (Path(lists) / "partial").mkdir()
        options = ["-o", "Acquire::Languages=en", "-o", f"Dir::State::Lists={lists}"]
        subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
        files = sorted(Path(lists).glob("*_main_i18n_Translation-en*"))
        text = "\n\n".join(
            subprocess.run(
                ["/usr/lib/apt/apt-helper", "cat-file", file],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for file in files
        )
    found = {}
    for entry in text.split("\n\n"):
        name = re.search(r"^Package: (.*)$", entry, re.MULTILINE)
        said = re.search(r"^Description-en: (.*)\n((?: .*\n?)*)", entry, re.MULTILINE)
        if name and said:
            found[name[1]] = (said[1].strip(), " ".join(said[2].replace("\n .", "\n").split()))
    return found


def main() -> None:
    """Write corpus.jsonl, queries.jsonl and qrels/train.tsv."""
    usable = {
        name: (short, long)
        for name, (short, long) in packages().items()
        if len(short.split()) > 3 and len(long.split()) > 29 and not _DULL.search(short)
    }
    first: dict[str, str] = {}
    for name in sorted(usable):
        first.setdefault(usable[name][1], name)
    kept = {name: usable[name] for name in first.values()}
    by_query: dict[str, list[str]] = {}
    for name, (short, _) in kept.items():
        by_query.setdefault(short.lower(), []).append(name)
    shared = [name for names in by_query.values() if len(names) > 1 for name in names]
    alone = sorted(
        set(kept) - set(shared), key=lambda name: hashlib.sha1(name.encode()).hexdigest()
    )
    chosen = set(shared) | set(alone[: max(0, MOST_DOCUMENTS - len(shared))])

    rows = []
    for number, (_, names) in enumerate(sorted(by_query.items())):
        mine = [name for name in names if name in chosen]
        rows += [(f"q{number}", kept[mine[0]][0], name) for name in mine]
    corpus = pd.DataFrame(
        [(name, kept[name][1]) for name in sorted(chosen)], columns=["document_id", "text"]
    )
    labels = pd.DataFrame(rows, columns=["query_id", "text", "document_id"]).assign(
        relevance=1, split="train"
    )
    write_beir(DEBIAN, corpus.assign(title=""), labels.drop_duplicates("query_id"), labels)
    print(
        f"{len(chosen)} documents, {sum(len(n) > 1 for n in by_query.values())} queries with"
        f" several, in {DEBIAN}"
    )


if __name__ == "__main__":
    main()
