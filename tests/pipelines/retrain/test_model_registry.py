"""Versions of a model and their aliases, in a real registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from anmi.cli.champion import roll_back
from anmi.datasets.model_registry import CHALLENGER, CHAMPION, ModelRegistry, digest, read_beside
from anmi.errors import AnmiError


@pytest.fixture
def name() -> str:
    return f"anmi-{uuid4().hex[:8]}"


def versions(registry: ModelRegistry, name: str, folder: Path, *fingerprints: str) -> list[Any]:
    return [registry.register(name, folder, {"fingerprint": each}) for each in fingerprints]


@pytest.mark.rare
@pytest.mark.parametrize("place", ["database", "server"])
def test_a_model_goes_in_and_comes_out_as_it_was(
    place: str,
    request: pytest.FixtureRequest,
    open_registry: Callable[[str], Any],
    new_folder: Callable[..., Path],
    word_encoder: Callable[..., Any],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = open_registry(request.getfixturevalue(place))
    assert registry.at(name, CHAMPION) is None
    assert registry.aliases(name) == {}
    assert registry.entries(name) == []
    folder = new_folder(tmp_path / "made", profile={"terms": 3})
    first = registry.register(name, folder, {"recipe": "anmi", "fingerprint": "a"})
    assert registry.at(name, CHALLENGER) == first
    assert registry.at(name, CHAMPION) is None
    registry.set_champion(first, None)
    assert registry.aliases(name) == {CHAMPION: 1, CHALLENGER: 1} and registry.has_files(first)
    champion = registry.at(name, CHAMPION)
    fetched = registry.fetch(champion, tmp_path / "fetched")
    assert digest(fetched) == digest(folder) == champion.tags["digest"]
    assert read_beside(fetched, "training_profile.json") == {"terms": 3}
    assert read_beside(fetched, "anmi.json") == {"prompt_query": "", "max_length": None}
    assert {
        path.suffix
        for path in (fetched / "model.sentence_transformer").rglob("*")
        if path.is_file()
    } == {".json", ".safetensors"}

    import mlflow.sentence_transformers

    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", registry.uri)
    loaded = mlflow.sentence_transformers.load_model(f"models:/{name}@champion")
    expected = word_encoder(["night", "day"]).encode(["night day"])
    np.testing.assert_array_equal(loaded.encode(["night day"]), expected)
    # What MLflow leaves where somebody has loaded a model does not make it another one.
    assert digest(registry.fetch(champion, tmp_path / "again")) == champion.tags["digest"]


def test_other_weights_than_were_registered_are_not_loaded(
    registry: ModelRegistry, new_folder: Callable[..., Path], name: str, tmp_path: Path
) -> None:
    made = registry.register(name, new_folder(tmp_path / "made"), {})
    run = registry.client.get_run(made.run).info
    (stored,) = Path(run.artifact_uri.removeprefix("file://")).rglob("*.safetensors")
    stored.write_bytes(stored.read_bytes()[:-1] + b"\x01")
    with pytest.raises(AnmiError, match="not what was registered"):
        registry.fetch(made, tmp_path / "fetched")
    stored.with_name("config.json").write_text("{}")
    stored.unlink()
    with pytest.raises(AnmiError, match="version 1"):
        registry.fetch(made, tmp_path / "once more")


def test_going_back_goes_all_the_way_and_not_in_circles(
    registry: ModelRegistry, new_folder: Callable[..., Path], name: str, tmp_path: Path
) -> None:
    made = versions(registry, name, new_folder(tmp_path / "made"), "a", "b", "c", "d")
    for entry in made[:3]:
        registry.set_champion(entry, registry.at(name, CHAMPION))
    assert (registry.aliases(name), registry.at(name, CHAMPION).previous) == (
        {CHAMPION: 3, CHALLENGER: 4},
        2,
    )
    assert [entry.version for entry in registry.entries(name)] == [4, 3, 2, 1]
    assert [roll_back(registry, name, None)[1].version for _ in range(2)] == [2, 1]
    assert registry.aliases(name)[CHAMPION] == 1 and "rolled_back" in registry.entry(name, 2).tags
    with pytest.raises(AnmiError, match="has no champion before this one"):
        roll_back(registry, name, None)
    # Forward to one that was never promoted: it remembers where it was reached from.
    assert roll_back(registry, name, 4)[1].version == 4
    assert roll_back(registry, name, None)[1].version == 1
    with pytest.raises(AnmiError, match="already"):
        roll_back(registry, name, 1)
    with pytest.raises(AnmiError, match="no version 9"):
        roll_back(registry, name, 9)


def test_a_server_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(AnmiError, match="MLFLOW_TRACKING_URI") as caught:
        ModelRegistry("http://me:secret@127.0.0.1:9").names()
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
