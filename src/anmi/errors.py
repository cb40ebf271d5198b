"""The errors a user can do something about."""

from __future__ import annotations

import difflib
import heapq
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import eq
from typing import Any, Final

# User and password of an address. A password may hold any of these characters, but digits up to a
# slash are a port.
_USER: Final = re.compile(r"""(?<=//)[^\s/@:'"<>]*(?::(?!\d{1,5}/)[^\s'"<>]*)?@""")
_SIGNED: Final = re.compile(
    r"([?&;][\w.-]*(?:key|token|secret|passw(?:or)?d|sig|signature|credential|auth)=)"
    r"""[^&;\s"'<>]+""",
    re.IGNORECASE,
)
_LONGEST: Final = 1200
_LONGEST_LINE: Final = 200
# Names, of which an error lists all no longer where it can guess what was meant.
_MANY: Final = 30
# Of which so many are compared letter by letter.
_LIKELY: Final = 2000
# Control characters but for tab and line feed, and those that turn the direction of writing: a
# terminal obeys them.
COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PLAIN_NAME: Final = re.compile(r"[^\W_][\w.-]{0,99}")


class AnmiError(Exception):
    """A one-sentence message that names what is wrong, where, and what to do.

    The command line prints it without a traceback; anything else that is raised is a defect of
    ours. Whatever the sentence quotes, it shows no password, gives no command to a terminal, and
    fits a screen.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(
            *(shortened(visible(masked(part))) if isinstance(part, str) else part for part in parts)
        )


_NO_MEMORY: Final = re.compile("(not enough|allocate|out of) memory|ALLOC_FAILED|bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of Python or torch says that memory did not suffice.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    True
    """
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


@contextmanager
def enough_memory(task: str, cure: str) -> Iterator[None]:
    """Say in one sentence that memory does not suffice for ``task``, and the cure."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = first_line(error) or "MemoryError"
        raise AnmiError(f"{task}: the memory does not suffice ({reason}): {cure}") from error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from or while handling, and so on; each once.

    Examples
    --------
    >>> error = ValueError("outer")
    >>> error.__cause__ = KeyError("inner")
    >>> [type(cause).__name__ for cause in causes(error)]
    ['ValueError', 'KeyError']
    """
    yielded: set[int] = set()
    while error is not None and id(error) not in yielded:
        yielded.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


# The index has the name "anmi" for a package of somebody else.
DISTRIBUTION: Final = "anmi-retrieval"


def pip_install(extra: str) -> str:
    """Return the command that installs what an extra needs.

    Examples
    --------
    >>> pip_install("pdf")
    'pip install "anmi-retrieval[pdf]"'
    """
    return f'pip install "{DISTRIBUTION}[{extra}]"'


def installed(package: str, purpose: str, extra: str, otherwise: str = "") -> Any:
    """Import a package; where it is not installed, an error says what needs it and what to do."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        needed = f"{purpose} needs the package {package}: {pip_install(extra)}"
        raise AnmiError(f"{needed}, or {otherwise}" if otherwise else needed) from error


def shortened(text: str) -> str:
    """Return a text without the middle of what is too long for a sentence.

    Examples
    --------
    >>> text = shortened("a" * 1_000_000 + " is no id")
    >>> len(text), text[-11:]
    (1203, 'aa is no id')
    """
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, short and without passwords."""
    # Masked before it is cut: half an address is not seen to hold a password.
    first = masked((str(error).strip() or type(error).__name__).splitlines()[0])
    return first if len(first) <= _LONGEST_LINE else first[:_LONGEST_LINE] + "…"


def masked(text: str) -> str:
    """Return a text without the user, password or signed key of the addresses in it.

    Examples
    --------
    >>> masked("https://me:secret@host/x and s3://bucket/a?X-Amz-Signature=0a1b&part=2")
    'https://***@host/x and s3://bucket/a?X-Amz-Signature=***&part=2'
    """
    return _SIGNED.sub(r"\1***", _USER.sub("***@", text))


def holds_address_secret(text: str) -> bool:
    """Tell whether a text holds an address with credentials.

    Examples
    --------
    >>> holds_address_secret("beir:https://me:secret@host"), holds_address_secret("pairs:a.jsonl")
    (True, False)
    """
    return "//" in text and bool(_USER.search(text) or _SIGNED.search(text))


def visible(text: str) -> str:
    r"""Return a text with the characters that command a terminal written out.

    Examples
    --------
    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return COMMANDS.sub(lambda character: repr(character[0])[1:-1], text)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return nested mappings and lists with each text in them changed; names stay.

    Examples
    --------
    >>> each_text({"a": ["s3://key:secret@bucket", 1]}, masked)
    {'a': ['s3://***@bucket', 1]}
    """
    if isinstance(value, Mapping):
        return {key: each_text(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def is_plain_name(name: str) -> bool:
    """Tell whether a name is safe in a file's: letters, digits, ``_``, ``-``, ``.``, at most 100.

    Examples
    --------
    >>> is_plain_name("anmi_2_1"), is_plain_name("../x"), is_plain_name("a/b")
    (True, False, False)
    """
    return _PLAIN_NAME.fullmatch(name) is not None


def nearest(name: str, known_names: Iterable[str]) -> str:
    """Return a hint that names the closest known name, for error messages.

    Examples
    --------
    >>> nearest("anmi_21", ["anmi_2_1", "random"])
    'did you mean "anmi_2_1"? Known: anmi_2_1, random'
    >>> nearest("recipe_7x", [f"recipe_{number}" for number in range(60)])
    'did you mean "recipe_7"? There are 60, such as recipe_57, recipe_47'
    """
    # Comparing with every id of a large corpus takes minutes; one slip leaves the start and the end
    # as they are.
    names = sorted(known_names)
    likely = heapq.nlargest(
        _LIKELY,
        names,
        lambda entry: sum(map(eq, name, entry)) + sum(map(eq, name[::-1], entry[::-1])),
    )
    close = difflib.get_close_matches(name, likely, n=3, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    if len(names) > _MANY and len(close) > 1:
        return f"{hint}There are {len(names)}, such as {', '.join(close[1:])}"
    return f"{hint}Known: {', '.join(names)}"
