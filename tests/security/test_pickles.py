"""Pickles are told by content where a run could leave one, and no module of ours makes, reads or runs any."""

from __future__ import annotations

import ast
import collections
import pickle
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.security import pickles

SOURCE = Path(__file__).parents[2] / "src" / "anmi"
OBJECT = collections.OrderedDict(a=1)
PICKLED = pickle.dumps(OBJECT)


def torch_file(path: Path, **options: Any) -> None:
    import torch

    torch.save({"weight": torch.zeros(2)}, path, **options)


def database(path: Path) -> None:
    with sqlite3.connect(path) as made:
        made.execute("create table a (b blob)")
        made.execute("insert into a values (?)", (PICKLED,))


def store(path: Path) -> None:
    import lmdb

    folder = path.with_name("store")
    with lmdb.open(str(folder), max_dbs=2) as made:
        table = made.open_db(b"entries")
        with made.begin(write=True, db=table) as transaction:
            transaction.put(b"key", PICKLED)
    (folder / "lock.mdb").unlink()


PLANTED: dict[str, Callable[[Path], Any]] = {
    **{f"protocol {n}": lambda path, n=n: path.write_bytes(pickle.dumps(OBJECT, n)) for n in range(2, 6)},  # type: ignore[misc]
    "list": lambda path: path.write_bytes(pickle.dumps([1, 2, "x"])),
    "torch": torch_file,
    "old torch": lambda path: torch_file(path, _use_new_zipfile_serialization=False),
    "array": lambda path: np.save(path.open("wb"), np.array([{}, None], dtype=object), allow_pickle=True),
    "arrays": lambda path: np.savez(path.open("wb"), a=np.arange(3), b=np.array([{}], dtype=object)),
    "record array": lambda path: np.save(
        path.open("wb"), np.zeros(2, dtype=[("a", "f4"), ("b", "O")]), allow_pickle=True
    ),
    "column": lambda path: pd.DataFrame({"a": [PICKLED, b""]}).to_parquet(path, compression="zstd"),
    "database": database,
    "store": store,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_pickle_is_found_wherever_it_hides(kind: str, tmp_path: Path) -> None:
    PLANTED[kind](tmp_path / "innocent.json")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert pickles.found_in(file), kind


def test_numbers_texts_and_models_are_not_taken_for_one(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2000, 256)).astype(np.float32)
    np.save(tmp_path / "a.npy", weights)
    (tmp_path / "noise.bin").write_bytes(rng.bytes(4_000_000))
    save_file({"w": weights}, tmp_path / "model.safetensors")
    pd.DataFrame({"text": ["(c os system ."] * 50, "n": range(50)}).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "code.txt").write_text("cos\nsystem\n is no pickle\n.\n" * 5)
    assert {path.name: found for path in tmp_path.iterdir() if (found := pickles.found_in(path))} == {}


# What ruff's rules of bandit do not see: they refuse calls of eval, exec, pickle, marshal, yaml.load and a shell.
CODE = re.compile(
    r"(?<!`)(allow_pickle|trust_remote_code) *= *(?!False)|weights_only *= *(?!True)|\btorch\.(load|save|hub)\b"
    r"|\bto_pickle\b|^ *(import|from) (c?[pP]ickle|cloudpickle|dill|joblib|jsonpickle|marshal|shelve|xmlrpc)\b"
    r"|import_module\((?!['\"])",
    re.MULTILINE,
)
ALLOWED = {
    # Between the run and its own worker processes, in memory; nothing of it is written.
    "engine/shards.py",
    # Names of modules that are constants of ours.
    *("corpus/sources.py", "corpus/api_docs.py", "pipeline_registry.py", "errors.py"),
}


def test_no_module_turns_data_into_code() -> None:
    code = {path: ast.unparse(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCE.rglob("*.py")}
    found = {path.relative_to(SOURCE).as_posix() for path, text in code.items() if CODE.search(text)}
    assert len(code) > 100 and found == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle", "from joblib import dump", "import dill.source", "torch.load(p)", "frame.to_pickle(p)"),
        *("np.load(p, allow_pickle=True)", "np.load(p, allow_pickle=flag)", "M(p, trust_remote_code=True)"),
        *("importlib.import_module(name)", "read(p, weights_only=False)"),
    ],
)
def test_the_rule_sees_what_it_forbids(line: str) -> None:
    assert CODE.search(line) and not CODE.search("np.load(p, allow_pickle=False)")
