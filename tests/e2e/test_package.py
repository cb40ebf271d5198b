"""`kedro package`: what it writes installs and runs where there is no project and no repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.rare


def test_mining_runs_from_the_wheel(
    project: Path, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    for name in ("src", "conf"):
        ignored = shutil.ignore_patterns("local", "__pycache__", "*.egg-info")
        shutil.copytree(project / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(project / name, source)
    (source / "conf" / "local").mkdir()
    (source / "conf" / "local" / "credentials.yml").write_text("secret: tr0ub4dor")
    bare = ("MLFLOW", "ANMI", "KEDRO", "PYTHON", "AWS")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(bare)}
    kedro = Path(sys.executable).with_name("kedro")
    done = subprocess.run(
        [kedro, "package"], cwd=source, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (archive,) = ((source / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if ".dist-info/" not in name}
    files = (
        path
        for path in (source / "src" / "anmi").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    assert inside == {path.relative_to(source / "src").as_posix() for path in files}
    with tarfile.open(archive) as tar:
        assert not [name for name in tar.getnames() if "credentials" in name]
        tar.extractall(elsewhere, filter="data")

    # A new environment with the wheel; what it needs comes from this one by a path file, and not
    # the project itself.
    venv.create(elsewhere / "venv", with_pip=False)
    python = elsewhere / "venv" / "bin" / "python"
    (packages,) = (elsewhere / "venv").glob("lib/python*/site-packages")
    import kedro as locked

    (packages / "locked.pth").write_text(f"{Path(locked.__file__).parents[1]}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, str(wheel)], env=clean, check=True)
    new_store(elsewhere / "store")
    places = {
        "ANMI_DATA_ROOT": str(elsewhere / "data"),
        "ANMI_STORE": str(elsewhere / "store"),
        "COLUMNS": "200",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "anmi", "--conf-source=conf", "--env", "test", *arguments]
        return subprocess.run(
            command,
            cwd=elsewhere,
            env=clean | places,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    done = run("--pipelines", "mining", "--params", "ingestion.api_docs_queries=40")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((elsewhere / "data").rglob("training_rows.parquet"))
    wrong = run("--params", "recipy=anmi")
    assert wrong.returncode == 1
    assert 'there is no parameter "recipy": did you mean "recipe"' in wrong.stderr
