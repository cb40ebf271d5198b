"""Files behind fsspec, such as those of a bucket, and their errors in one sentence.

Credentials come from the environment alone, read by the file system's own library (for S3
``AWS_ACCESS_KEY_ID`` and the like, ``AWS_ENDPOINT_URL`` for a server of one's own); nothing of this
project ever holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import fsspec

from anmi import files
from anmi.errors import AnmiError, causes, first_line, pip_install
from anmi.files import aside
from anmi.fingerprint import files_in

# Parts of a large file at a time, each of which s3fs holds in memory.
_PARTS: Final = 4
# Files at a time. s3fs holds each in memory, up to four parts of 50 MiB of it and files up to twice
# a part, so that an upload takes some 800 MiB at worst and not 64 GiB.
_FILES: Final = 4
_UNREACHABLE: Final = {
    *("ConnectionError", "ConnectTimeoutError", "HTTPClientError", "TimeoutError", "gaierror")
}
# Marks in a bucket a folder of which all is there.
COMPLETE: Final = "_complete"


def file_system(location: str) -> Any:
    """Return the file system of a URL.

    Raises
    ------
    AnmiError
        The protocol is unknown, or its library is not installed.
    """
    protocol = location.partition("://")[0]
    parts = {"max_concurrency": _PARTS} if protocol in ("s3", "s3a") else {}
    with in_one_sentence(location):
        return fsspec.filesystem(protocol, **parts)


def names(location: str) -> list[str]:
    """Return the sorted names in a folder, by its path or URL; none where it is absent."""
    with in_one_sentence(location):
        return listed(*fsspec.core.url_to_fs(location))


def listed(files: Any, path: str) -> list[str]:
    """Return the names of what lies in a folder, sorted; none where it is not there."""
    files.invalidate_cache(path)
    try:
        return sorted(
            entry.rstrip("/").rpartition("/")[2] for entry in files.ls(path, detail=False)
        )
    except FileNotFoundError as error:
        if lacks_bucket(error):
            raise
        return []


def read_text(location: str) -> str | None:
    """Return what a small file holds, by its path or URL; None where there is no such file."""
    with in_one_sentence(location):
        system, path = fsspec.core.url_to_fs(location)
        try:
            return str(system.cat_file(path), "utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError) as error:
            if lacks_bucket(error):
                raise
            return None


def write_text(location: str, text: str) -> None:
    """Write a small file by its path or URL, whole or not at all."""
    if "://" in location:
        with in_one_sentence(location):
            file_system(location).pipe_file(location, text.encode("utf-8"))
    else:
        with aside(Path(location)) as path:
            path.write_text(text, encoding="utf-8")


def remove(location: str) -> None:
    """Remove a file or folder by its path or URL; it is moved aside first, so never seen half.

    In a bucket the mark that a folder is complete goes first.
    """
    if "://" not in location:
        if Path(location).exists():
            files.remove(Path(location), beside=Path(location).parent)
        return
    with in_one_sentence(location):
        empty(*fsspec.core.url_to_fs(location))


def empty(files: Any, target: str) -> None:
    """Remove a folder, the marks of completeness first: after a crash it is never loaded."""
    files.invalidate_cache(target)
    for path in files.find(target):
        if path.endswith(f"/{COMPLETE}"):
            files.rm_file(path)
    if files.exists(target):
        files.rm(target, recursive=True)


def upload(files: Any, local: Path, target: str, location: str) -> None:
    """Copy a file, or a folder marked as complete, to ``target``; errors name ``location``.

    Empty folders in it are not kept: buckets know none.
    """
    with in_one_sentence(location):
        if not local.is_dir():
            # S3 shows a file once all its bytes are there, one that is sent in parts as well.
            files.put_file(str(local), target)
            return
        empty(files, target)
        sources = files_in(local)
        targets = [f"{target}/{path.relative_to(local).as_posix()}" for path in sources]
        if sources:
            files.put([str(path) for path in sources], targets, batch_size=_FILES)
        files.pipe_file(f"{target}/{COMPLETE}", b"")


def download(files: Any, source: str, local: Path, location: str) -> None:
    """Copy a file or folder to ``local``, which does not exist yet; errors name ``location``."""
    with in_one_sentence(location):
        if not files.isdir(source):
            files.get_file(source, str(local))
            return
        local.mkdir()
        # A file system may or may not begin its paths with a slash.
        inside = {
            path: path.strip("/").removeprefix(source.strip("/")).strip("/")
            for path in files.find(source)
        }
        if any(".." in PurePosixPath(name).parts for name in inside.values()):
            raise AnmiError(
                f"{location} holds a name with .. in it, which would lead out of its folder:"
                " remove it"
            )
        inside = {path: name for path, name in inside.items() if name and name != COMPLETE}
        for name in inside.values():
            (local / name).parent.mkdir(parents=True, exist_ok=True)
        if inside:
            files.get(
                list(inside), [str(local / name) for name in inside.values()], batch_size=_FILES
            )


def lacks_bucket(error: BaseException) -> bool:
    """Tell whether the bucket itself is not there, rather than something in it."""
    return any(
        re.search(r"bucket does not exist|NoSuchBucket", f"{type(cause)} {cause}")
        for cause in causes(error)
    )


@contextmanager
def in_one_sentence(location: str) -> Iterator[None]:
    """Say of whatever a file system raises inside what is wrong where, and what to do."""
    try:
        yield
    except AnmiError:
        raise
    except Exception as error:
        raise AnmiError(sentence(location, error)) from error


def sentence(location: str, error: BaseException) -> str:
    """Return what a user should know of an error of a file system.

    Examples
    --------
    >>> sentence("gs://b/x", PermissionError("Forbidden"))
    'gs://b/x may not be used (Forbidden): check the credentials in the environment'
    """
    kinds = {kind.__name__ for cause in causes(error) for kind in type(cause).__mro__}
    reason = first_line(error)
    is_s3 = location.startswith(("s3:", "s3a:"))
    keys = " (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)" if is_s3 else ""
    endpoint = " and AWS_ENDPOINT_URL" if is_s3 else ""
    credentials = f"the credentials in the environment{keys}"
    if lacks_bucket(error):
        return f"{location}: there is no such bucket: create it, or correct ANMI_DATA_ROOT"
    problem = f" cannot be used ({reason}): check ANMI_DATA_ROOT{endpoint}"
    if "ImportError" in kinds:
        package = pip_install("s3") if is_s3 else "install it"
        problem = f" needs a package that is not installed ({reason}): {package}"
    elif kinds & {"NoCredentialsError", "PartialCredentialsError"}:
        problem = f" cannot be used without credentials: set {credentials}"
    elif "PermissionError" in kinds:
        problem = f" may not be used ({reason}): check {credentials}"
    elif "FileNotFoundError" in kinds:
        problem = f" is not there, or not all of it ({reason})"
    elif kinds & _UNREACHABLE:
        problem = f" cannot be reached ({reason}): check the network{endpoint}"
    return location + problem
