"""The folder that a search is deployed as: what must be in it, and whether it is whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from anmi.errors import AnmiError
from anmi.fingerprint import hash_file

SETTINGS: Final = "hybrid.json"
README: Final = "README.md"
FORMAT: Final = 2
# A second retriever, trained beside that which a run is named after, lies in a folder of this name: within the folder
# of the first where the run trained it, beside it in a search.
COMPANION: Final = "companion"
# Hashing takes about a second per gigabyte; of what is larger and no weights the size tells.
_HASHED: Final = 64 << 20
_WEIGHTS: Final = ".safetensors"


def seal(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings with the size and SHA-256 of every other file: last, so that half a folder has none."""
    files = {
        path.relative_to(folder).as_posix(): _facts(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (SETTINGS, README)
    }
    text = json.dumps({"format": FORMAT, **settings, "files": files}, indent=1, ensure_ascii=False)
    (folder / SETTINGS).write_text(text + "\n", encoding="utf-8")


def _facts(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    hashed = size <= _HASHED or path.suffix == _WEIGHTS
    return {"bytes": size} | ({"sha256": hash_file(path, "sha256")} if hashed else {})


def opened(folder: Path) -> dict[str, Any]:
    """Return the settings of a folder, having made sure that nothing in it is missing or damaged.

    Raises
    ------
    AnmiError
        Naming the file and what is wrong with it.
    """
    again = "export it again (`kedro run --pipelines evaluation`), or copy it again, all of it"
    file = folder / SETTINGS
    if not file.is_file():
        half = f"has no {SETTINGS}, so it is no search folder or only half of one"
        raise AnmiError(f"{folder} {half if folder.is_dir() else 'is not there'}: {again}")
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        files = dict(settings["files"])
    except (ValueError, KeyError, TypeError):
        raise AnmiError(f"{file} is damaged: {again}") from None
    if settings.get("format") != FORMAT:
        raise AnmiError(
            f"{file} has the format {settings.get('format')}, and this release of anmi reads {FORMAT}: search with the "
            f"release that wrote it ({settings.get('versions', {}).get('anmi', 'unknown')}), or export it again"
        )
    for name, facts in files.items():
        path = folder / name
        if not path.is_file():
            raise AnmiError(f"{path} is missing: {again}")
        if path.stat().st_size != facts["bytes"]:
            raise AnmiError(f"{path} has {path.stat().st_size} bytes and had {facts['bytes']}: {again}")
        if "sha256" in facts and hash_file(path, "sha256") != facts["sha256"]:
            raise AnmiError(f"{path} is damaged, since its SHA-256 is not the one noted in {SETTINGS}: {again}")
    return settings


def copy_model(source: Path, target: Path) -> None:
    """Copy a model, of which nothing but data is taken, without what was trained beside it."""
    from anmi.retrieval.model_folder import check_folder

    check_folder(source)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(COMPANION))
