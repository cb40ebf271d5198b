"""`kedro package`: what it writes installs and runs where there is no project and no repository.

The environment is new and holds the wheel only. Its dependencies come from this one's folder of locked packages by a
path file, which pip would otherwise download for minutes; the editable installation of the project there is not found,
since its own path file is not read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from anmi.cli.package import pack_configuration
from anmi.errors import AnmiError

SECRET: Final = "tr0ub4dor-and-3"
PLANTED: Final = (
    "credentials.yml",
    "credentials.yaml",
    "mlflow.yaml",
    "parameters.json",
    ".env",
    "deep/er/credentials.yml",
    "deep/er/token.txt",
)


PAGE: Final = Path(__file__).parents[2] / "docs" / "production.md"


def documented(start: str) -> list[list[str]]:
    """Return the commands of the page that start so, for the place and the environment that are tested here."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(start)]
    return [shlex.split(line.replace("=conf", "=settings").replace("prod", "test")) for line in lines]


def clean() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW", "ANMI", "KEDRO", "PYTHON", "AWS"))}


def plant(local: Path) -> None:
    for name in PLANTED:
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(f"secret: {SECRET}\n")
    (local / ".gitkeep").touch()


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return sorted(tar.getnames())


def test_nothing_of_the_local_configuration_is_packed(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project / "conf", tmp_path / "conf", ignore=shutil.ignore_patterns("local"))
    plant(tmp_path / "conf" / "local")
    pack_configuration(tmp_path / "conf", tmp_path / "conf.tar.gz")
    with tarfile.open(tmp_path / "conf.tar.gz") as tar:
        held = {found.name: tar.extractfile(found) for found in tar.getmembers()}
        texts = {name: file.read().decode() for name, file in held.items() if file is not None}
    assert not [name for name, text in texts.items() if SECRET in text]
    assert [name for name in names(tmp_path / "conf.tar.gz") if "local" in name] == [
        "conf/local",
        "conf/local/.gitkeep",
    ]
    rest = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "conf").rglob("*.yml")}
    assert texts.keys() >= {name for name in rest if "/local/" not in name} >= {"conf/base/globals.yml"}
    # What Kedro's own command does, so that this test ends when that is mended.
    subprocess.run(["tar", "--exclude=local/*.yml", "-czf", "theirs.tar.gz", "conf"], cwd=tmp_path, check=True)
    assert "conf/local/credentials.yaml" in names(tmp_path / "theirs.tar.gz")


def test_equal_configurations_give_equal_bytes(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project / "conf" / "base", tmp_path / "one" / "conf" / "base")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for number, name in enumerate(("one", "two")):
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (number, number))
        pack_configuration(tmp_path / name / "conf", tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_a_link_is_refused_and_leaves_no_archive(tmp_path: Path) -> None:
    (tmp_path / "conf" / "base").mkdir(parents=True)
    (tmp_path / "conf" / "base" / "parameters.yml").symlink_to("/etc/hostname")
    with pytest.raises(AnmiError, match=r"conf/base/parameters\.yml is a link"):
        pack_configuration(tmp_path / "conf", tmp_path / "conf.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["conf"]


@dataclass
class Packaged:
    """A copy of the project after packaging, and a folder elsewhere in which the wheel is installed."""

    source: Path
    elsewhere: Path
    python: Path

    @property
    def archive(self) -> Path:
        return self.source / "dist" / "conf-anmi.tar.gz"

    def anmi(self, *arguments: str, module: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-m", "anmi"] if module else [str(self.python.with_name("anmi"))]
        places = {"ANMI_DATA_ROOT": str(self.elsewhere / "data"), "ANMI_STORE": str(self.elsewhere / "store")}
        return subprocess.run(
            [*command, *arguments],
            cwd=self.elsewhere,
            env={**clean(), **places, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="module")
def packaged(project: Path, tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[Path], Path]) -> Packaged:
    source, elsewhere = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("elsewhere")
    for name in ("src", "conf"):
        shutil.copytree(
            project / name, source / name, ignore=shutil.ignore_patterns("local", "__pycache__", "*.egg-info")
        )
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(project / name, source)
    plant(source / "conf" / "local")
    kedro = Path(sys.executable).with_name("kedro")
    (package,), (unpack,) = documented("kedro package"), documented("tar ")
    done = subprocess.run([kedro, *package[1:]], cwd=source, env=clean(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, archive = (Path(line) for line in done.stdout.splitlines()[-2:])
    venv.create(elsewhere / "venv", with_pip=False)
    python = elsewhere / "venv" / "bin" / "python"
    (packages,) = (elsewhere / "venv").glob("lib/python*/site-packages")
    import kedro as locked

    (packages / "locked.pth").write_text(f"{Path(locked.__file__).parents[1]}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], env=clean(), check=True)
    shutil.copy(archive, elsewhere)
    subprocess.run(unpack, cwd=elsewhere, check=True)
    (elsewhere / archive.name).unlink()
    # Somewhere else than where it would be looked for anyway.
    (elsewhere / "conf").rename(elsewhere / "settings")
    new_store(elsewhere / "store")
    return Packaged(source, elsewhere, python)


@pytest.mark.slow
@pytest.mark.rare
def test_the_wheel_has_all_of_the_package_and_nothing_else(packaged: Packaged) -> None:
    (wheel,) = packaged.archive.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        inside = {name for name in found.namelist() if ".dist-info/" not in name}
        assert not [name for name in found.namelist() if SECRET.encode() in found.read(name)]
    package = packaged.source / "src"
    files = {path.relative_to(package).as_posix() for path in (package / "anmi").rglob("*") if path.is_file()}
    assert inside == {name for name in files if "__pycache__" not in name}
    assert SECRET not in str(names(packaged.archive))
    assert not [name for name in names(packaged.archive) if "credentials" in name]


@pytest.mark.slow
@pytest.mark.rare
def test_mining_runs_from_the_wheel(packaged: Packaged) -> None:
    where = subprocess.run(
        [packaged.python, "-c", "import anmi; print(anmi.__file__)"],
        cwd=packaged.elsewhere, env=clean(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout).is_relative_to(packaged.elsewhere / "venv")
    run, look, _ = documented("anmi ")
    done = packaged.anmi(*run[1:], "--params", "ingestion.api_docs_queries=40")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Using '" not in done.stdout, "the configuration of logging is the one that was named"
    (manifest,) = (packaged.elsewhere / "data" / "runs").glob("*/manifest.json")
    record: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
    assert record["status"] == "finished"
    assert record["git"] == {}
    assert record["versions"]["anmi"]
    assert {path.name for path in packaged.elsewhere.iterdir()} == {"data", "store", "settings", "venv"}
    # As messages name the command, and with the archive as it is.
    for words in (look[1:], ["anmi", "negatives", "--env", "test", "--conf-source", str(packaged.archive)]):
        shown = packaged.anmi(*words, "--json")
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["recipe"] == "anmi"


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--conf-source=settings", "--params", "recipy=anmi"], 1, 'there is no parameter "recipy": did you mean'),
        (["run", "--conf-source", "settings", "--pipelines", "minning"], 1, "minning"),
        (["results"], 2, "there is no configuration in .*/conf: name its folder or archive with --conf-source"),
        (["explain", "nobody", "--conf-source=nowhere"], 2, "there is no configuration in .*/nowhere"),
    ],
)
def test_errors_of_the_package_are_one_sentence(packaged: Packaged, arguments: list[str], code: int, said: str) -> None:
    done = packaged.anmi(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert re.search(said, line)


@pytest.mark.slow
@pytest.mark.rare
def test_the_script_does_what_the_module_does(packaged: Packaged) -> None:
    helps = [packaged.anmi(*documented("anmi --help")[0][1:], module=module) for module in (True, False)]
    assert [done.returncode for done in helps] == [0, 0], helps[1].stderr
    assert helps[0].stdout == helps[1].stdout
    assert {"run", "results", "explain"} <= set(re.findall(r"^  (\w+) ", helps[0].stdout, flags=re.MULTILINE))
