"""Which code can change a result, found by following imports, as a hash that comments and layout leave as it is.

Hashing the whole package would throw away days of training for a word in a help text; a list written by hand misses
what is added later.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

# What happens around a run and is of no effect on numbers; imports are not followed into it.
_EDGE: Final = ("cli", "hooks", "runs", "datasets", "report", "settings", "configuration", "pipeline_registry")
_MODULE: Final = re.compile(r"anmi(\.\w+)+(:\w+)?")

Root = str | Callable[..., Any]


@lru_cache(maxsize=16)
def code(*roots: Root) -> str:
    """Return a hash of all code of this package that is reached from the roots, as it was when it was first asked for.

    Parameters
    ----------
    roots
        Names of modules or packages; or functions, of which what they import themselves is followed, and their module
        is hashed and not followed.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    state = hashlib.blake2b(digest_size=16)
    package = _package()
    for path in reached(*roots):
        content = _read(path).meaning if path.suffix == ".py" else path.read_bytes()
        state.update(path.relative_to(package).as_posix().encode() + b"\0" + content + b"\0")
    return state.hexdigest()


def reached(*roots: Root) -> list[Path]:
    """Return the files that are reached from the roots, sorted: modules, their packages, and data files they name."""
    found: set[Path] = set()
    names: list[str] = []
    for root in roots:
        if isinstance(root, str):
            names.append(root)
        else:
            found.add(Path(inspect.getfile(root)))
            names += _named(ast.parse(textwrap.dedent(inspect.getsource(root))))
    seen: set[str] = set()
    while names:
        parts = names.pop().split(".")
        if parts[0] != "anmi" or (len(parts) > 1 and parts[1].startswith(_EDGE)):
            continue
        # Importing a.b.c runs a and a.b as well.
        for name in {".".join(parts[:count]) for count in range(1, len(parts) + 1)} - seen:
            seen.add(name)
            path = _file(name)
            if path is not None:
                module = _read(path)
                found |= {path, *module.data}
                names += module.named
    return sorted(found)


class _Module(NamedTuple):
    """What a module imports, which data files it names, and what it does."""

    named: tuple[str, ...]
    data: tuple[Path, ...]
    meaning: bytes


@cache
def _read(path: Path) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named, data = tuple(_named(tree)), tuple(_data(tree, path.parent))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return _Module(named, data, ast.dump(tree).encode())


def _package() -> Path:
    import anmi

    return Path(anmi.__file__).parent


def _file(name: str) -> Path | None:
    place = _package().joinpath(*name.split(".")[1:])
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _named(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported anywhere in the code, and texts that name a module for a later import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from anmi.corpus import texts` names the module only in its second half.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield node.value.partition(":")[0]


def _data(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """Yield files beside a module that it names, such as shipped coefficients."""
    beside = {path.name: path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in beside:
            yield beside[node.value]


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
