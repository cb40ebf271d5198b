"""Writing an export to a folder: its files, and a README that says how they are read."""

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
        """Return the line that reads the export from a folder, or from the current one."""
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
                for number, lines in enumerate(_slices(table, size), start=1):
                    file_name = files.replace("*", f"{prefix}{number:03d}")
                    write_lines(lines, folder / file_name)
        (folder / README).write_text(self.readme(folder), encoding="utf-8")

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield what stands in the name of the files before their number, and the lines in them."""
        if self.parted_by is None:
            yield "", self.table
            return
        # Two sources may differ in nothing that a file's name can hold; their lines then share the
        # files.
        sources = self.table[self.parted_by].astype(str)
        names = sources.str.replace(_PLAIN, "-", regex=True)
        names = names.str.strip("-").replace("", "none")
        for name, table in self.table.groupby(names, sort=True):
            yield f"{name}_", table

    def readme(self, folder: Path) -> str:
        """Return what the README of a folder with the files says."""
        export_format = FORMATS[self.name]
        columns = ", ".join(map(str, self.table))
        lines = [
            card_header(folder, {"default": export_format.files}),
            f"# {self.name}",
            "",
            export_format.description,
            "",
            f"{len(self.table):,} lines of {columns}.",
            *card_lines(self.mined),
        ]
        if self.score is not None:
            lines.append(f"Scores: {self.score}.")
        if any(self.prompts.values()):
            lines += [
                "",
                f"The encoder that mined has prompts: {in_words(self.prompts)}. The texts are"
                " without them: give them to your trainer if it trains the same encoder.",
            ]
        if self.left_out:
            lines += ["", "Left out:", ""]
            lines += [f"- {reason}: {count:,}" for reason, count in self.left_out.items()]
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
    export_format = find_format(name, options)
    score = options.score
    if score is None and export_format.needs_score and len(rows):
        score = formats.preferred_score(rows)
    flat = formats.flatten(rows, options, collection, score)
    table = export_format.make(flat)
    if table.empty:
        reasons = [f"{reason} ({count})" for reason, count in flat.left_out.items()]
        message = ", ".join(reasons) or "there are no training rows"
        if score:
            shares = formats.share_text(formats.known_shares(rows))
            message += f"; scores of these rows: {shares}"
        raise AnmiError(f'nothing is left to export as "{name}": {message}')
    prompts = (encoder_info or {}).get("prompts") or {}
    parted_by = "source" if options.by_source else None
    facts = {}
    if collection:
        facts["Collection"] = f"{collection.name} ({collection.language})"
    facts |= mined or {}
    return Exported(name, table, score, flat.left_out, prompts, parted_by, facts)


def card_header(
    folder: Path,
    files: Mapping[str, str | Mapping[str, str]],
    language: str | None = None,
) -> str:
    """Return the head of a dataset card: its configurations with their files, or files by split.

    The description tells `datasets`, which goes by name and card, that a folder is not one that it
    read before.
    """
    described = (path for path in files_in(folder) if path.name != README)
    description = hash_files((path.name, path) for path in described)
    configs = []
    for name, paths in files.items():
        data_files: Any = paths
        if not isinstance(paths, str):
            data_files = [{"split": split, "path": path} for split, path in paths.items()]
        configs.append(
            {
                "config_name": name,
                "description": description,
                "data_files": data_files,
            }
        )
    head: dict[str, Any] = {
        "license": "unknown",
        "tags": ["anmi"],
        "configs": configs,
    }
    if language:
        head["language"] = language
    # JSON is YAML.
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    return "\n".join(["---", *lines, "---"])


def card_lines(mined: Mapping[str, str]) -> list[str]:
    """Return what a card says of how it was made, and of the licence."""
    facts = [f"- {title}: {value}" for title, value in mined.items() if value]
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
        name={name}, description="Made by ANMI.", type="Retrieval", category="t2t",
        dataset={{"path": str(Path(__file__).parent), "revision": "1"}}, modalities=["text"],
        eval_splits={splits}, eval_langs=[CODES[{language}]], main_score="ndcg_at_10",
        reference=None, date=None, domains=None, task_subtypes=None, license=None, dialect=None,
        annotations_creators=None, sample_creation=None, bibtex_citation=None,
    )
'''


def export_collection(
    collection: Collection,
    qrels: pd.DataFrame,
    folder: Path,
    *,
    lines: bool = False,
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
    corpus = _with_places(collection.corpus)
    queries = collection.queries.rename(columns={"query_id": "_id"})
    queries = queries[["_id", "text", "metadata"]]
    for name, table in (("corpus", corpus), ("queries", queries)):
        if lines:
            metadata = [json.loads(text or "{}") for text in table["metadata"]]
            write_lines(table.assign(metadata=metadata), folder / f"{name}.jsonl")
        else:
            _write_parquet(table, folder / f"{name}.parquet")
    columns = {"query_id": "query-id", "document_id": "corpus-id", "relevance": "score"}
    labels = qrels.rename(columns=columns)
    files = {}
    for split, rows in labels.groupby("split"):
        table = rows[list(columns.values())]
        file_name = f"qrels/{split}.{'tsv' if lines else 'parquet'}"
        files[str(split)] = file_name
        if lines:
            rows_of_values = [list(table), *table.to_numpy().tolist()]
            texts = ["\t".join(map(str, values)) for values in rows_of_values]
            text = "\n".join([*texts, ""])
            (folder / file_name).write_text(text, encoding="utf-8")
        else:
            _write_parquet(table, folder / file_name)
    documents = documents_of(collection.corpus).nunique()
    if not lines:
        counts = {
            "Collection": collection.name,
            "Documents": f"{documents:,}",
            "Queries": f"{len(queries):,}",
            "Labels": f"{len(qrels):,}",
        }
        if documents < len(corpus):
            counts["Documents"] += f", as {len(corpus):,} passages that name them in `metadata`"
        _write_card(collection, files, counts, folder)
    return documents


def _write_card(
    collection: Collection,
    files: Mapping[str, str],
    counts: Mapping[str, str],
    folder: Path,
) -> None:
    """Write the card of a collection, and its task for MTEB; ``files`` are of labels by split."""
    tables = {"corpus": "corpus.parquet", "queries": "queries.parquet"}
    head = card_header(folder, {**tables, "default": files}, collection.language)
    text = "\n".join([head, "# A collection", *card_lines(counts), ""])
    (folder / README).write_text(text, encoding="utf-8")
    name = re.sub(r"\W+", "_", collection.name).strip("_")
    splits = [split for split in files if split != "train"][-1:] or list(files)
    task = _TASK.format(
        name=repr(name),
        splits=splits,
        language=repr(collection.language[:2]),
    )
    (folder / "mteb_task.py").write_text(task, encoding="utf-8")


def _with_places(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return ``_id, title, text, metadata``; passages have document and start in their metadata."""
    if "start" in corpus:
        metadata = []
        for text, document, start in zip(
            corpus["metadata"],
            corpus["parent"],
            corpus["start"].tolist(),
            strict=True,
        ):
            place = {"document": document, "start": start}
            metadata.append(text if start < 0 else to_json(json.loads(text) | place))
        corpus = corpus.assign(metadata=metadata)
    corpus = corpus.rename(columns={"document_id": "_id"})
    return corpus[["_id", "title", "text", "metadata"]]


def _slices(table: pd.DataFrame, size: int = _GROUP) -> Iterator[pd.DataFrame]:
    for start in range(0, max(len(table), 1), size):
        yield table.iloc[start : start + size]


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.Schema.from_pandas(table.head(_GROUP), preserve_index=False).remove_metadata()
    # In groups, since one group's texts must stay below two gigabytes, and so that memory is
    # bounded by a group.
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for rows in _slices(table):
            writer.write_table(pa.Table.from_pandas(rows, schema=schema, preserve_index=False))


def write_lines(table: pd.DataFrame, path: Path) -> None:
    """Write one JSON object a row; what is missing or no finite number becomes null."""
    names = [str(name) for name in table.columns]
    with path.open("wb") as file:
        for rows in _slices(table):
            columns = (rows[name].tolist() for name in rows.columns)
            for values in zip(*columns, strict=True):
                row = dict(zip(names, values, strict=True))
                file.write(orjson.dumps(row, _listed, orjson.OPT_APPEND_NEWLINE))


def _listed(value: Any) -> Any:
    # Numbers of an array as Python's own, with all their digits.
    return value.tolist() if hasattr(value, "tolist") else str(value)


def may_replace(folder: Path) -> str | None:
    """Return the name of something in a folder that no export wrote; None where there is none."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() or not _OURS.fullmatch(entry.name):
            return entry.name
    return None
