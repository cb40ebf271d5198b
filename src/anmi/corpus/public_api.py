"""The public objects of installed packages, one entry per object however many names it has."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

# Parts of a package that are importable yet not meant for its users.
_INTERNAL: Final = frozenset(
    {"conftest", "distutils", "experimental", "externals", "f2py", "setup", "testing", "tests"}
)
# pandas keeps its implementation in modules without an underscore; what is public is in the top module.
_TOP_ONLY: Final = frozenset({"pandas"})


@dataclass(frozen=True)
class PublicObject:
    """A documented class, function or method.

    Attributes
    ----------
    name
        The most public of its qualified names: fewest dots, then shortest, then first in the alphabet.
    aliases
        All its qualified names.
    module
        The module ``name`` is in.
    kind
        ``class``, ``function`` or ``method``.
    package
        Top-level package.
    docstring
        As it stands.
    """

    name: str
    aliases: tuple[str, ...]
    module: str
    kind: str
    package: str
    docstring: str

    def with_aliases(self, aliases: tuple[str, ...]) -> PublicObject:
        """Return a copy with other aliases."""
        return replace(self, aliases=tuple(sorted(set(aliases), key=publicness)))


def publicness(name: str) -> tuple[int, int, str]:
    """Return a key that sorts the most public name first.

    Examples
    --------
    >>> min(["numpy.linalg.norm", "numpy.dot", "numpy.matmul"], key=publicness)
    'numpy.dot'
    """
    return name.count("."), len(name), name


def public_objects(packages: Sequence[str]) -> list[PublicObject]:
    """Return the public objects of packages, aliases merged by identity.

    Looked at are a package and its public modules one level below, in each the names in ``__all__`` (else those
    without a leading underscore) that belong to the package. Of a class, the public methods it defines itself count;
    inherited ones are found at the base class.

    Parameters
    ----------
    packages
        Names of importable packages. What cannot be imported is left out.

    Returns
    -------
    list of PublicObject
        Sorted from the most to the least public name, the same in every process.
    """
    # The object itself is kept, so that its id cannot be given to another one.
    seen: dict[int, tuple[Any, str, str, dict[str, str]]] = {}
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        for package in packages:
            for module in _modules(package):
                for name, item, kind in _members(module, package):
                    entry = seen.setdefault(id(item), (item, kind, package, {}))
                    entry[3][name] = module.__name__
        found = []
        for item, kind, package, names in seen.values():
            docstring, aliases = getattr(item, "__doc__", None), tuple(sorted(names, key=publicness))
            if isinstance(docstring, str) and docstring:
                found.append(PublicObject(aliases[0], aliases, names[aliases[0]], kind, package, docstring))
    return sorted(found, key=lambda item: publicness(item.name))


def _modules(package: str) -> Iterator[ModuleType]:
    try:
        root = importlib.import_module(package)
    except ImportError:
        return
    yield root
    if package in _TOP_ONLY:
        return
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda info: info.name):
        if info.name.startswith("_") or info.name in _INTERNAL:
            continue
        # Optional parts raise whatever they like when what they need is absent.
        with contextlib.suppress(Exception):
            yield importlib.import_module(f"{package}.{info.name}")


def _members(module: ModuleType, package: str) -> Iterator[tuple[str, Any, str]]:
    """Yield qualified name, object and kind; methods after their class."""
    names: Iterable[str] = getattr(module, "__all__", None) or vars(module)
    for name in sorted(set(names)):
        if name.startswith("_"):
            continue
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
            yield from _methods(qualified, item)
        elif inspect.isroutine(item) or type(item).__name__ == "ufunc":
            yield qualified, item, "function"


def _methods(qualified: str, owner: type) -> Iterator[tuple[str, Any, str]]:
    for name, member in sorted(vars(owner).items()):
        # Static and class methods wrap a function; two names of it may wear two wrappers.
        function = getattr(member, "__func__", member)
        # Descriptors that make a method per class have no name of their own and one docstring for all.
        if not name.startswith("_") and inspect.isroutine(function) and hasattr(function, "__name__"):
            yield f"{qualified}.{name}", function, "method"
