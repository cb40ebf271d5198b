"""The built-in collection: documentation of installed packages, read from the packages themselves.

A query is the one-sentence summary of a docstring, its document the rest of that docstring. Many
objects share the very same summary (``DataFrame.std``, ``Series.std``): known false negatives, kept
as equivalents for scoring.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.metadata import version
from types import ModuleType
from typing import Any, Final, NamedTuple

import pandas as pd

from anmi.corpus.texts import to_json
from anmi.corpus.types import ENTITY_COLUMNS, Options, RawCollection

PACKAGES: Final = ("numpy", "scipy", "pandas", "sklearn")
# Parts of a package that are importable yet not meant for its users.
_INTERNAL: Final = frozenset(
    ["conftest", "distutils", "experimental", "externals", "f2py", "setup", "testing", "tests"]
)
# pandas keeps its implementation in modules without an underscore; what is public is in the top
# module.
_TOP_ONLY: Final = frozenset({"pandas"})
_SHORT: Final = {"np": "numpy", "pd": "pandas", "sp": "scipy"}
_MIN_SUMMARY_WORDS: Final = 4
_MIN_DOCUMENT_WORDS: Final = 30
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
# Functions written in C carry their signature as the first paragraph: "add(x1, x2, /, out=None)".
_SIGNATURE: Final = re.compile(r"[\w.]+\s*\(.*\)(\s*->.*)?", re.DOTALL)
_SEVERAL_SENTENCES: Final = re.compile(r"[.!?]\s")
_SEE_ALSO: Final = re.compile(
    r"^See Also\n-{3,}\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL
)
_ROLE: Final = re.compile(r":[\w:]+:`~?([^`]+)`")
# What differs from process to process in docstrings that packages write when they are imported.
_VARYING_LINE: Final = re.compile(r"^.*# may vary$\n?", re.MULTILINE)
_SET_OF_NAMES: Final = re.compile(r"``\{('[^'`]*'(?:, '[^'`]*')+)\}``")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]{6,}")
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")


class PublicObject(NamedTuple):
    """A documented class, function or method, with its docstring in two."""

    name: str
    module: str
    kind: str
    package: str
    summary: str
    body: str
    aliases: list[str]


def publicness(name: str) -> tuple[int, int, str]:
    """Return a key that sorts the most public name first.

    Examples
    --------
    >>> min(["numpy.linalg.norm", "numpy.dot", "numpy.matmul"], key=publicness)
    'numpy.dot'
    """
    return name.count("."), len(name), name


def public_objects(packages: Sequence[str]) -> list[PublicObject]:
    """Return the public objects of packages whose docstring makes a query and a document, by name.

    One docstring counts once: names of one object, and wrappers that carry the docstring of what
    they wrap (``numpy.ma.var`` that of ``numpy.var``), which are other objects, yet aliases to the
    reader. The most public name has the fewest dots, then is the shortest, then the first in the
    alphabet.

    A package and its public modules one level below count, in each the names in ``__all__`` (else
    those without a leading underscore) that belong to the package. Of a class, the public methods
    it defines itself count; inherited ones are found at the base class.

    Parameters
    ----------
    packages
        Names of importable packages. What cannot be imported is left out.

    Returns
    -------
    list of PublicObject
        The same in every process.
    """
    named_docstrings = defaultdict[tuple[str, str], list[tuple[str, str, str, str]]](list)
    first_objects: dict[int, tuple[Any, str]] = {}
    with (
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        # All are imported first: scipy adds to what numpy says.
        modules = []
        for package in packages:
            modules += [(module, package) for module in _modules(package)]
        for module, package in modules:
            for name, item, kind in _members(module, package):
                docstring = getattr(item, "__doc__", None)
                # The object itself is kept, so that its id cannot be given to another one.
                _, first = first_objects.setdefault(id(item), (item, kind))
                if isinstance(docstring, str) and (parts := split_docstring(docstring)):
                    named_docstrings[parts].append((name, module.__name__, first, package))
    objects = []
    for parts, named in named_docstrings.items():
        named.sort(key=lambda entry: publicness(entry[0]))
        aliases = [name for name, *_ in named]
        objects.append(PublicObject(*named[0], *parts, aliases))
    return sorted(objects)


def _modules(package: str) -> Iterator[ModuleType]:
    try:
        root = importlib.import_module(package)
    except ImportError:
        return
    yield root
    below = () if package in _TOP_ONLY else pkgutil.iter_modules(root.__path__)
    for name in sorted(info.name for info in below):
        if not name.startswith("_") and name not in _INTERNAL:
            # Optional parts raise whatever they like when what they need is absent.
            with suppress(Exception):
                yield importlib.import_module(f"{package}.{name}")


def _members(module: ModuleType, package: str) -> Iterator[tuple[str, Any, str]]:
    """Yield qualified name, object and kind; methods after their class."""
    names: Iterable[str] = getattr(module, "__all__", None) or vars(module)
    for name in sorted(name for name in set(names) if not name.startswith("_")):
        try:
            item = getattr(module, name)
        except Exception:  # a lazy attribute may need a package that is absent
            continue
        home = getattr(item, "__module__", None)
        if isinstance(home, str) and home.split(".")[0] != package:
            continue
        qualified = f"{module.__name__}.{name}"
        if inspect.isclass(item):
            yield qualified, item, "class"
            for method, member in sorted(vars(item).items()):
                # Static and class methods wrap a function; two names of it may wear two wrappers.
                function = getattr(member, "__func__", member)
                # Descriptors that make a method per class have no name of their own and one
                # docstring for all.
                if (
                    not method.startswith("_")
                    and inspect.isroutine(function)
                    and hasattr(function, "__name__")
                ):
                    yield f"{qualified}.{method}", function, "method"
        elif inspect.isroutine(item) or type(item).__name__ == "ufunc":
            yield qualified, item, "function"


def stable(text: str) -> str:
    """Return a docstring without what differs from process to process.

    scipy writes random samples, and sets in the order of their hashes, into docstrings at import.

    Examples
    --------
    >>> stable("``{'b', 'a'}`` <f at 0x7fe9a1b2c3> ok")
    "``{'a', 'b'}`` <f> ok"
    """
    text = _VARYING_LINE.sub("", text)
    text = _SET_OF_NAMES.sub(_sorted_names, text)
    return _ADDRESS.sub("", text)


def _sorted_names(match: re.Match[str]) -> str:
    names = sorted(match.group(1).split(", "))
    return "``{" + ", ".join(names) + "}``"


def split_docstring(text: str) -> tuple[str, str] | None:
    r"""Return summary and body of a docstring; ``None`` if it makes no query and document.

    The first paragraph must be one sentence of at least 4 words, the rest at least 30 words.

    Examples
    --------
    >>> split_docstring("Too short.") is None
    True
    >>> summary, body = split_docstring("f(x)\n\nReturn the very first\nitem.\n\n" + "word " * 30)
    >>> summary
    'Return the very first item.'
    """
    paragraphs = _PARAGRAPH.split(inspect.cleandoc(stable(text)).strip())
    if len(paragraphs) > 1 and _SIGNATURE.fullmatch(paragraphs[0].strip()):
        del paragraphs[0]
    summary = " ".join(paragraphs[0].split())
    body = "\n\n".join(paragraphs[1:]).strip()
    if len(summary.split()) < _MIN_SUMMARY_WORDS or _SEVERAL_SENTENCES.search(summary):
        return None
    return (summary, body) if len(body.split()) >= _MIN_DOCUMENT_WORDS else None


def see_also(docstring: str) -> list[str]:
    r"""Return the names a docstring's "See Also" section lists, as they are written there.

    Examples
    --------
    >>> see_also("See Also\n--------\nmean, var : Others.\n    More.\n:func:`numpy.sum`\n")
    ['mean', 'var', 'numpy.sum']
    """
    match = _SEE_ALSO.search(docstring)
    names: list[str] = []
    for line in match[1].splitlines() if match else ():
        # Descriptions are indented; only lines at the margin name objects.
        if line and not line[0].isspace():
            plain_line = _ROLE.sub(r"\1", line)
            before_colon = re.split(r"\s:(?:\s|$)", plain_line)[0]
            for written in before_colon.split(","):
                name = written.strip().strip("`").removesuffix("()")
                names.append(name.lstrip("~"))
    return [name for name in names if _NAME.fullmatch(name)]


def read_api_docs(location: str, options: Options) -> RawCollection:
    """Read the documentation of the installed numpy, scipy, pandas and scikit-learn.

    Parameters
    ----------
    location, options
        Not used; every reader takes them.
    """
    objects = public_objects(PACKAGES)
    names = [item.name for item in objects]
    metadata = [
        to_json({key: getattr(item, key) for key in ("module", "kind", "package")})
        for item in objects
    ]
    packages = [item.package for item in objects]

    def table(**columns: Any) -> pd.DataFrame:
        return pd.DataFrame({**columns, "file": packages}, dtype="str").assign(line=0)

    # What may stand for an object in a sentence is one of its kind in its module: numpy.linalg.det
    # for numpy.linalg.norm. A kind alone would let any of 1,800 functions stand there.
    kinds = {item.name: f"{item.kind}:{item.module}" for item in objects}
    kinds |= {item.module: "module" for item in objects if item.module not in kinds}
    entities = []
    for name, kind in kinds.items():
        label = name.rpartition(".")[2]
        entities.append((name, label, to_json([kind])))
    return RawCollection(
        # No title: the name would give the answer away.
        table(
            document_id=names,
            title="",
            text=[item.body for item in objects],
            metadata=metadata,
        ),
        table(
            query_id=names,
            text=[item.summary for item in objects],
            metadata=metadata,
        ),
        table(query_id=names, document_id=names, relevance="1", split="train"),
        pd.DataFrame(
            _triples(objects),
            columns=["head", "relation", "tail"],
            dtype="str",
        ),
        same_text_is_equivalent=True,
        notes={
            "packages": {
                name: version("scikit-learn" if name == "sklearn" else name) for name in PACKAGES
            }
        },
        entities=pd.DataFrame(entities, columns=list(ENTITY_COLUMNS), dtype="str"),
    )


def _triples(objects: list[PublicObject]) -> list[tuple[str, str, str]]:
    names = {alias: item.name for item in objects for alias in item.aliases}
    triples: dict[tuple[str, str, str], None] = {}
    for item in objects:
        triples[item.name, "module", item.module] = None
        triples[item.name, "kind", item.kind] = None
        for reference in see_also(item.body):
            target = _resolve(reference, item, names)
            if target not in (None, item.name):
                triples[item.name, "see_also", target] = None
    return list(triples)


def _resolve(
    written: str,
    item: PublicObject,
    names: Mapping[str, str],
) -> str | None:
    """Look a name up as Sphinx would: beside the object, in the modules around it, as it is."""
    scope = item.name.split(".")[:-1]
    scopes = [".".join(scope[:length]) for length in range(len(scope), 0, -1)]
    head, _, tail = written.partition(".")
    candidates = [f"{prefix}.{written}" for prefix in [*scopes, item.module]]
    candidates.append(written)
    candidates.append(f"{_SHORT.get(head, head)}.{tail}")
    return next((names[name] for name in candidates if name in names), None)
