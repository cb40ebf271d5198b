"""Writing an export to a folder: its files, and a README that says what they are and how they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pandas as pd

from anmi.corpus.related import documents_of
from anmi.corpus.texts import to_json
from anmi.errors import AnmiError
from anmi.fingerprint import files_in, hash_files
from anmi.retrieval.kinds import in_words
from anmi.selection.export import formats
from anmi.selection.export.formats import FORMATS, Collection, ExportOptions, find_format

README: Final = "README.md"
_OURS: Final = re.compile(r"README\.md|train\.(parquet|jsonl)|part_([\w.-]+_)?\d{3,}\.jsonl")
# What a name of a source may bring into that of a file.
_PLAIN: Final = re.compile(r"[^\w.-]+")
_GROUP: Final = 10_000
_CHUNK: Final = 100_000


@dataclass(frozen=True)
class Exported:
    """One export, ready to be written.

    Attributes
    ----------
    name
        Of the format.
    table
        The lines.
    score
        Which judgment its scores or labels are; None for none.
    left_out
        How many of what is not in it.
    prompts
        What the encoder that mined puts before texts, by role; empty where that is not known.
    parted_by
        Column by whose values numbered files are parted, ``part_VALUE_001.jsonl`` and so on; None
        for none.
    mined
        From what and how the lines were made, for the card.
    """

    name: str
    table: pd.DataFrame
    score: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    parted_by: str | None = None
    mined: Mapping[str, str] = field(default_factory=dict)

    def how_to_load(self, folder: Path | None = None) -> str:
        """Return the line that reads the export from a folder, or from the one that it is run in."""
        files = FORMATS[self.name].files
        path = json.dumps(str(folder / files) if folder else files, ensure_ascii=False)
        return FORMATS[self.name].loading.format(path=path)

    def save(self, folder: Path) -> None:
        """Write the files into a folder, which is made where there is none."""
        folder.mkdir(parents=True, exist_ok=True)
        files = FORMATS[self.name].files
        if files.endswith(".parquet"):
            _write_parquet(self.table, folder / files)
        else:
            for prefix, table in self._parts():
                size = _CHUNK if "*" in files else max(len(table), 1)
                for number, start in enumerate(range(0, max(len(table), 1), size), start=1):
                    write_lines(
                        table.iloc[start : start + size],
                        folder / files.replace("*", f"{prefix}{number:03d}"),
                    )
        (folder / README).write_text(self.readme(folder), encoding="utf-8")

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield what stands in the name of the files before their number, and the lines in them."""
        if self.parted_by is None:
            yield "", self.table
            return
        # Two sources may differ in nothing that a file's name can hold; their lines then share the
        # files.
        names = (
            self.table[self.parted_by]
            .astype(str)
            .map(lambda value: _PLAIN.sub("-", value).strip("-") or "none")
        )
        for name, table in self.table.groupby(names, sort=True):
            yield f"{name}_", table

    def readme(self, folder: Path) -> str:
        """Return what the README of a folder with the files says."""
        columns = ", ".join(map(str, self.table))
        about = FORMATS[self.name].description
        lines = [
            card_header(folder, {"default": FORMATS[self.name].files}),
            f"# {self.name}",
            "",
            about,
            "",
        ]
        lines += [f"{len(self.table):,} lines of {columns}.", *card_lines(self.mined)]
        lines += [] if self.score is None else [f"Scores: {self.score}."]
        if any(self.prompts.values()):
            prompt_note = (
                f"The encoder that mined has prompts: {in_words(self.prompts)}. The texts are"
                " without them: give them "
            )
            lines += ["", f"{prompt_note}to your trainer if it trains the same encoder."]
        if self.left_out:
            lines += [
                "",
                "Left out:",
                "",
                *(f"- {what}: {count:,}" for what, count in self.left_out.items()),
            ]
        return "\n".join([*lines, "", "Read it with", "", f"    {self.how_to_load()}", ""])


def make_export(
    rows: pd.DataFrame,
    name: str,
    options: ExportOptions | None = None,
    collection: Collection | None = None,
    encoder_info: Mapping[str, Any] | None = None,
    mined: Mapping[str, str] | None = None,
) -> Exported:
    """Turn training rows into a format.

    Parameters
    ----------
    rows
        As :func:`anmi.selection.rows.training_rows` makes them; further columns are ignored.
    name
        Of the format.
    options
        What goes into it.
    collection
        What the rows were made of; ``pairs`` needs it, ``tevatron`` takes titles from it.
    encoder_info
        What is known of the encoder that mined, ``prompts`` among it, for the README.
    mined
        What else the README says of how the rows were made.

    Raises
    ------
    AnmiError
        Unknown format or score, an option the format has no place for, or nothing is left to
        export.
    """
    options = options or ExportOptions()
    kind = find_format(name, options)
    score = options.score or (
        formats.preferred_score(rows) if kind.needs_score and len(rows) else None
    )
    laid = formats.flatten(rows, options, collection, score)
    table = kind.make(laid)
    if not len(table):
        lost = ", ".join(f"{what} ({count})" for what, count in laid.left_out.items())
        scores = (
            f"; scores of these rows: {formats.share_text(formats.known_shares(rows))}"
            if score
            else ""
        )
        raise AnmiError(
            f'nothing is left to export as "{name}": {lost or "there are no training rows"}{scores}'
        )
    prompts = (encoder_info or {}).get("prompts") or {}
    parted = "source" if options.by_source else None
    about = {"Collection": f"{collection.name} ({collection.language})"} if collection else {}
    return Exported(name, table, score, laid.left_out, prompts, parted, about | dict(mined or {}))


def card_header(
    folder: Path, files: Mapping[str, str | Mapping[str, str]], language: str | None = None
) -> str:
    """Return the head of a dataset card: its configurations with their files, or files by split.

    The description tells `datasets`, which goes by name and card, that a folder is not one that it
    read before.
    """
    description = hash_files((path.name, path) for path in files_in(folder) if path.name != README)
    configs = [
        {
            "config_name": name,
            "description": description,
            "data_files": (
                paths
                if isinstance(paths, str)
                else [{"split": split, "path": path} for split, path in paths.items()]
            ),
        }
        for name, paths in files.items()
    ]
    # JSON is YAML.
    head = {"license": "unknown", "tags": ["anmi"], "configs": configs} | (
        {"language": language} if language else {}
    )
    return "\n".join(
        ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---"]
    )


def card_lines(mined: Mapping[str, str]) -> list[str]:
    """Return what a card says of how it was made, and of the licence."""
    facts = [f"- {what}: {value}" for what, value in mined.items() if value]
    licence = (
        "The licence is that of the texts: put it in place of `unknown` above before you pass"
        " this on."
    )
    return ["", *facts, "", licence] if facts else ["", licence]


_TASK: Final = '''"""The collection as a task: ``mteb.evaluate(model, [Task()])``."""

import json
from pathlib import Path

import mteb
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

CODES = json.loads((Path(mteb.__file__).parent / "languages" / "iso_639_1_to_3.json").read_text())


class Task(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name={name}, description="Made by ANMI.", reference=None, type="Retrieval", category="t2t", modalities=["text"],
        dataset={{"path": str(Path(__file__).parent), "revision": "1"}}, eval_splits={splits},
        eval_langs=[CODES[{language}]], main_score="ndcg_at_10", date=None, domains=None, task_subtypes=None,
        license=None, annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None,
    )
'''


def export_collection(
    collection: Collection, qrels: pd.DataFrame, folder: Path, *, lines: bool = False
) -> int:
    """Write a collection as BEIR, ``datasets`` and MTEB read it; return the number of documents.

    Metadata are kept, as JSON in Parquet; those of a passage name its ``document`` and where it
    starts there.

    Parameters
    ----------
    collection
        With ``text`` of its queries.
    qrels
        ``query_id, document_id, relevance, split``.
    folder
        Made if it is not there.
    lines
        Write JSONL and TSV, as BEIR publishes collections, and nothing else, in the place of
        Parquet.
    """
    (folder / "qrels").mkdir(parents=True)
    whole = documents_of(collection.corpus)
    corpus = _with_places(collection.corpus)
    question_table = collection.queries.rename(columns={"query_id": "_id"})[
        ["_id", "text", "metadata"]
    ]
    for name, table in (("corpus", corpus), ("queries", question_table)):
        if lines:
            metadata = [json.loads(text or "{}") for text in table["metadata"]]
            write_lines(table.assign(metadata=metadata), folder / f"{name}.jsonl")
        else:
            _write_parquet(table, folder / f"{name}.parquet")
    files = {}
    labels = qrels.rename(
        columns={"query_id": "query-id", "document_id": "corpus-id", "relevance": "score"}
    )
    columns = ["query-id", "corpus-id", "score"]
    for split, rows in labels.groupby("split"):
        files[str(split)] = f"qrels/{split}.{'tsv' if lines else 'parquet'}"
        if lines:
            texts = [
                "\t".join(map(str, row)) for row in (columns, *rows[columns].to_numpy().tolist())
            ]
            (folder / files[str(split)]).write_text("\n".join([*texts, ""]), encoding="utf-8")
        else:
            _write_parquet(rows[columns], folder / files[str(split)])
    if lines:
        return whole.nunique()
    head = card_header(
        folder,
        {"corpus": "corpus.parquet", "queries": "queries.parquet", "default": files},
        collection.language,
    )
    passages = (
        f", as {len(corpus):,} passages that name them in `metadata`"
        if whole.nunique() < len(corpus)
        else ""
    )
    counts = {
        "Collection": collection.name,
        "Documents": f"{whole.nunique():,}{passages}",
        "Queries": f"{len(question_table):,}",
        "Labels": f"{len(qrels):,}",
    }
    text = "\n".join([head, "# A collection", *card_lines(counts), ""])
    (folder / README).write_text(text, encoding="utf-8")
    name = re.sub(r"\W+", "_", collection.name).strip("_")
    splits = [split for split in files if split != "train"][-1:] or list(files)
    task = _TASK.format(name=repr(name), splits=splits, language=repr(collection.language[:2]))
    (folder / "mteb_task.py").write_text(task, encoding="utf-8")
    return whole.nunique()


def _with_places(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return ``_id, title, text, metadata``, with document and start in the metadata of passages that were cut."""
    if "start" in corpus:
        places = zip(corpus["metadata"], corpus["parent"], corpus["start"].tolist(), strict=True)
        metadata = [
            (
                text
                if start < 0
                else to_json(json.loads(text) | {"document": document, "start": start})
            )
            for text, document, start in places
        ]
        corpus = corpus.assign(metadata=metadata)
    return corpus.rename(columns={"document_id": "_id"})[["_id", "title", "text", "metadata"]]


def _slices(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for start in range(0, max(len(table), 1), _GROUP):
        yield table.iloc[start : start + _GROUP]


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.Schema.from_pandas(table.head(_GROUP), preserve_index=False).remove_metadata()
    # In groups, since one group's texts must stay below two gigabytes, and so that memory is
    # bounded by a group.
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for part in _slices(table):
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))


def write_lines(table: pd.DataFrame, path: Path) -> None:
    """Write one JSON object a row; what is no number (NaN, infinities) and what is missing become null."""
    names = [str(name) for name in table.columns]
    with path.open("wb") as file:
        for part in _slices(table):
            columns = (part[name].tolist() for name in part.columns)
            rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
            file.writelines(orjson.dumps(row, _listed, orjson.OPT_APPEND_NEWLINE) for row in rows)


def _listed(value: Any) -> Any:
    # Numbers of an array as Python's own, with all their digits.
    return value.tolist() if hasattr(value, "tolist") else str(value)


def may_replace(folder: Path) -> str | None:
    """Return the name of something in a folder that no export wrote, or None where all of it may be replaced."""
    entries = sorted(folder.iterdir())
    return next(
        (entry.name for entry in entries if entry.is_dir() or not _OURS.fullmatch(entry.name)), None
    )
