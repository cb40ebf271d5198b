"""A search is deployed as a folder, which is sealed when written and checked when read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import jinja2

from anmi.errors import AnmiError
from anmi.files import read_json
from anmi.fingerprint import files_in, hash_file, hash_value

SETTINGS: Final = "hybrid.json"
README: Final = "README.md"
AGENTS: Final = "serve_mcp.py"
FORMAT: Final = 4
# A second retriever, trained beside that which a run is named after, lies in a folder of this name
# within the folder of the first.
COMPANION: Final = "companion"


def seal(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings, last, with the size and SHA-256 of every other file.

    All are hashed, which takes a second per gigabyte, and the settings themselves as well.
    """
    files = {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hash_file(path, "sha256"),
        }
        for path in files_in(folder)
        if path.name not in (SETTINGS, README, AGENTS)
    }
    sealed = json.loads(json.dumps({"format": FORMAT, **settings, "files": files}))
    text = json.dumps(sealed | {"digest": hash_value(sealed)}, indent=1, ensure_ascii=False)
    (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


def read_settings(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings of a folder, and by part what is wrong with its files.

    Raises
    ------
    AnmiError
        Naming the file that all parts need, and what is wrong with it.
    """
    again = "export it again (`kedro run --pipelines evaluation`), or copy it again, all of it"
    file = folder / SETTINGS
    if not file.is_file():
        half = f"has no {SETTINGS}, so it is no search folder or only half of one"
        raise AnmiError(f"{folder} {half if folder.is_dir() else 'is not there'}: {again}")
    try:
        settings: dict[str, Any] = read_json(file)
        noted = settings.pop("digest", None)
        files = dict(settings["files"])
    except (ValueError, KeyError, TypeError):
        raise AnmiError(f"{file} is damaged: {again}") from None
    if settings.get("format") != FORMAT:
        raise AnmiError(
            f"{file} has the format {settings.get('format')}, and this release of anmi reads"
            f" {FORMAT}: search with the release that wrote it"
            f" ({settings.get('versions', {}).get('anmi', 'unknown')}), or export it again"
        )
    if noted not in (None, hash_value(settings)):
        raise AnmiError(
            f"{file} is damaged ({again}), or was changed by hand: take its `digest` out"
        )
    names = {about["name"] for about in settings["parts"]}
    damaged: dict[str, str] = {}
    for name, facts in files.items():
        if (problem := _problem(folder / name, facts)) is None:
            continue
        part = name.partition("/")[0]
        if part not in names:
            raise AnmiError(f"{problem}: {again}")
        damaged.setdefault(part, f"{problem}: {again}")
    return settings, damaged


def _problem(path: Path, facts: dict[str, Any]) -> str | None:
    """Return what is wrong with a file, by its size and hash when it was written."""
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != facts["bytes"]:
        return f"{path} has {path.stat().st_size} bytes and had {facts['bytes']}"
    if hash_file(path, "sha256") != facts["sha256"]:
        return f"{path} is damaged, since its SHA-256 is not the one noted in {SETTINGS}"
    return None


def companion_of(model: Path) -> list[Path]:
    """Return the folder of the retriever that was trained beside a model, if there is one."""
    folder = model / COMPANION
    return [folder] if folder.is_dir() else []


def copy_model(source: Path, target: Path) -> None:
    """Copy a model, of which nothing but data is taken, without what was trained beside it."""
    from anmi.retrieval.model_folder import check_folder

    check_folder(source)
    for path in files_in(source):
        name = path.relative_to(source)
        if COMPANION not in name.parts:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


def rendered(name: str, **values: Any) -> str:
    """Return the text of a file for people and agents, from a template beside this module."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{name}.jinja").render(values)
