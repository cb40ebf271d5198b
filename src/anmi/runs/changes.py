"""What tells an earlier run from one that would be made now, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anmi.runs.record import flatten

PARTS: Final = ("collection", "parameters", "code", "packages")
_SHOWN: Final = 4


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Compare what two runs were made from.

    Parameters
    ----------
    before, now
        Manifests, or the parts of them that tell what a run is made from: ``collection``, ``parameters`` (those that
        count), ``code`` and ``git``, ``versions`` and ``python``. A part that one of them lacks is not compared.

    Returns
    -------
    dict
        Of the parts that differ, in words.

    Examples
    --------
    >>> changes({"versions": {"numpy": "1"}, "code": "a"}, {"versions": {"numpy": "2"}, "code": "a"})
    {'packages': 'numpy is 2 (was 1)'}
    """
    found = {
        "collection": _collection(before.get("collection") or {}, now.get("collection") or {}),
        "parameters": _values(before.get("parameters"), now.get("parameters")),
        "code": _code(before, now),
        "packages": _packages(before, now),
    }
    return {part: text for part, text in found.items() if text}


def _collection(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before.get("digest") or not now or before["digest"] == now.get("digest"):
        return ""
    if not now.get("digest"):
        return f"{now.get('name')} cannot be read"
    old, new = ({file["path"]: file for file in side["files"]} for side in (before, now))
    told = [
        f"{path} is gone"
        if path not in new
        else f"{path} is new"
        if path not in old
        else f"{path} changed ({old[path]['bytes']:,} to {new[path]['bytes']:,} bytes)"
        for path in {**old, **new}
        if old.get(path, {}).get("digest") != new.get(path, {}).get("digest")
    ]
    return _few(told) or f"{now['name']} changed"


def _values(before: Any, now: Any) -> str:
    if before is None or now is None:
        return ""
    old, new = flatten(before), flatten(now)
    return _few(
        [
            f"{name} is {new.get(name, 'not there')} (was {old.get(name, 'not there')})"
            for name in sorted({**old, **new})
            if old.get(name) != new.get(name) or (name in old) != (name in new)
        ]
    )


def _code(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before.get("code") or not now.get("code") or before["code"] == now["code"]:
        return ""
    old, new = (str((side.get("git") or {}).get("commit", ""))[:10] for side in (before, now))
    if old and new and old != new:
        return f"commit {new} (was {old})"
    return f"files of the package changed, in the same commit {new}" if new else "files of the package changed"


def _packages(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = (
        {**(side.get("versions") or {}), **({"python": side["python"]} if side.get("python") else {})}
        for side in (before, now)
    )
    if not old or not new:
        return ""
    return _few(
        [
            f"{name} is {new.get(name, 'not installed')} (was {old.get(name, 'not installed')})"
            for name in sorted({**old, **new})
            if old.get(name) != new.get(name) and (name != "python" or (name in old and name in new))
        ]
    )


def _few(told: list[str]) -> str:
    rest = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + rest
