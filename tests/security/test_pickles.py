"""Pickles are told by content where a run could leave one, and no module of ours makes, reads or runs any."""

from __future__ import annotations

import ast
import collections
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.security import pickles

SOURCE = Path(__file__).parents[2] / "src" / "anmi"
OBJECT = collections.OrderedDict(a=1)
OBJECTS = np.array([{}, None], dtype=object)
RECORDS = np.zeros(2, dtype=[("a", "f4"), ("b", "O")])
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
    **{
        f"protocol {n}": lambda path, n=n: path.write_bytes(pickle.dumps(OBJECT, n))
        for n in range(2, 6)
    },  # type: ignore[misc]
    "list": lambda path: path.write_bytes(pickle.dumps([1, 2, "x"])),
    "torch": torch_file,
    "old torch": lambda path: torch_file(path, _use_new_zipfile_serialization=False),
    "array": lambda path: np.save(path.open("wb"), OBJECTS, allow_pickle=True),
    "arrays": lambda path: np.savez(path.open("wb"), a=np.arange(3), b=OBJECTS),
    "record array": lambda path: np.save(path.open("wb"), RECORDS, allow_pickle=True),
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
    table = pd.DataFrame({"text": ["(c os system ."] * 50, "n": range(50)})
    table.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "code.txt").write_text("cos\nsystem\n is no pickle\n.\n" * 5)
    assert not [path.name for path in tmp_path.iterdir() if pickles.found_in(path)]


# Modules by which data becomes code, and those that may use one, each with its reason.
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
    "xmlrpc",
}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "breakpoint",
    "torch.load",
    "torch.save",
    "torch.hub.load",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "np.loads",
    "pd.read_pickle",
    "pandas.read_pickle",
    "numpy.loads",
    "tempfile.mktemp",
    "numpy.core._multiarray",
}
# What is never given, or given as the one constant.
SAFE_CONSTANTS = {"shell": False, "allow_pickle": False, "trust_remote_code": False}
SAFE_CONSTANTS |= {"weights_only": True}
ALLOWED = {
    # Between the run and its own worker processes, in a folder that only they can read.
    "engine": {"joblib", "pickle"}
}


def parts_of(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def offences(tree: ast.AST, allowed: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            is_plain = isinstance(node, ast.Import)
            names = [alias.name for alias in node.names] if is_plain else [node.module or ""]
            packages = {name.split(".")[0] for name in names}
            yield from (f"imports {name}" for name in packages & (FORBIDDEN_MODULES - allowed))
        if not isinstance(node, ast.Call):
            continue
        called = parts_of(node.func)
        if called in FORBIDDEN_CALLS or called.endswith((".to_pickle", ".read_pickle")):
            yield f"calls {called}"
        if called.startswith("pickle.") and called not in ("pickle.dumps", "pickle.loads"):
            yield f"calls {called}: only in memory"
        for keyword in node.keywords:
            text = ast.unparse(keyword.value)
            if text != str(SAFE_CONSTANTS.get(str(keyword.arg), text)):
                yield f"{called}({keyword.arg}={text})"
        first = node.args[0] if node.args else None
        if called.endswith("import_module") and isinstance(first, ast.Constant) is False:
            yield f"imports a computed module: {ast.unparse(node)}"


# Each imports a name of this package only: the argument is written in the module or checked before.
COMPUTED_IMPORTS = {
    "datasets/files.py": "refuses whatever is outside anmi before it imports",
    "corpus/sources.py": "the targets are constants of the module",
    "corpus/api_docs.py": "the packages of the collection api_docs, constants of its module",
    "pipeline_registry.py": "anmi.pipelines.<stage>.pipeline for the constants in STAGES",
    "errors.py": "callers of `installed` name packages as constants",
}


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
)
def test_no_module_turns_data_into_code(path: Path) -> None:
    name = path.relative_to(SOURCE).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    forgiven = "imports a computed module" if name in COMPUTED_IMPORTS else "nothing"
    allowed = ALLOWED.get(name.split("/")[0], set())
    assert not [line for line in offences(tree, allowed) if not line.startswith(forgiven)]


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import dump",
        "import dill.source",
        "eval(x)",
        "torch.load(p)",
        "np.load(p, allow_pickle=True)",
        "np.load(p, allow_pickle=flag)",
        "yaml.load(t)",
        "run(c, shell=True)",
        "M(p, trust_remote_code=True)",
        "os.system(c)",
        "frame.to_pickle(p)",
        "importlib.import_module(name)",
        "f(p, weights_only=False)",
    ],
)
def test_the_rule_sees_what_it_forbids(line: str) -> None:
    assert list(offences(ast.parse(line), set()))
