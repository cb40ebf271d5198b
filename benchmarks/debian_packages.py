"""A collection that nobody tuned on: descriptions of Debian packages, as a BEIR folder.

Query = the short description (over 3 words), document = the long one (over 29 words); packages that share a short
description answer the same query. Needs ``apt-get`` and a mirror. Run: ``python benchmarks/debian_packages.py FOLDER``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

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
                ["/usr/lib/apt/apt-helper", "cat-file", file], check=True, capture_output=True, text=True
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
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
    alone = sorted(set(kept) - set(shared), key=lambda name: hashlib.sha1(name.encode()).hexdigest())
    chosen = set(shared) | set(alone[: max(0, MOST_DOCUMENTS - len(shared))])

    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w") as corpus:
        for name in sorted(chosen):
            corpus.write(json.dumps({"_id": name, "title": "", "text": kept[name][1]}) + "\n")
    with (folder / "queries.jsonl").open("w") as queries, (folder / "qrels" / "train.tsv").open("w") as qrels:
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number, (_, names) in enumerate(sorted(by_query.items())):
            mine = [name for name in names if name in chosen]
            if mine:
                queries.write(json.dumps({"_id": f"q{number}", "text": kept[mine[0]][0]}) + "\n")
                qrels.writelines(f"q{number}\t{name}\t1\n" for name in mine)
    print(f"{len(chosen)} documents, {sum(len(n) > 1 for n in by_query.values())} queries with several, in {folder}")


if __name__ == "__main__":
    main()
