"""`kedro run --env prod`: artifacts in a bucket, runs on a tracking server that asks for a password.

Both are real servers on this machine: moto's, which checks signatures and permissions once a user
exists, and `mlflow server` on SQLite. MLflow's own basic-auth app needs Flask-WTF, which is not
locked, so the password is asked for by an app of a few lines that MLflow loads as it loads its own
(`--app-name`).
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.commands import environment, free_port, serving, serving_mlflow

from anmi.hooks.record import flatten

pytestmark = pytest.mark.rare
BUCKET: Final = "anmi-production"
ROOT: Final = f"s3://{BUCKET}/nightly"
USER, PASSWORD = "retriever", "pa55-for-the-tracking-server"
GUARD: Final = """
import hmac, os
from mlflow.server.fastapi_app import app
from starlette.responses import PlainTextResponse

@app.middleware("http")
async def guard(request, call_next):
    if not hmac.compare_digest(request.headers.get("authorization", ""), os.environ["GUARD"]):
        return PlainTextResponse("a name and a password are needed", 401)
    return await call_next(request)
"""


PAGE: Final = Path(__file__).parents[2] / "docs" / "production.md"


def documented(start: str) -> list[str]:
    """Return the arguments of the one command of the page that starts so."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(start)]
    return shlex.split(line)[1:]


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@dataclass
class Production:
    """A working directory, a bucket, a tracking server, and the command with their credentials."""

    project: Path
    scratch: Path
    storage_log: Path
    server: Path
    variables: dict[str, str]

    def kedro(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        given = {**environment(), **self.variables, **variables}
        return subprocess.run(
            [str(Path(sys.executable).with_name("kedro")), *arguments],
            cwd=self.project,
            env={name: value for name, value in given.items() if value},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def bucket(self) -> Any:
        import boto3

        keys = ("aws_access_key_id", "aws_secret_access_key")
        storage = boto3.resource(
            "s3",
            endpoint_url=self.variables["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            **{key: self.variables[key.upper()] for key in keys},
        )
        return storage.Bucket(BUCKET)

    def objects(self) -> dict[str, bytes]:
        return {found.key: found.get()["Body"].read() for found in self.bucket().objects.all()}

    def requests(self, verb: str) -> Counter[str]:
        """Count requests by the object they were for."""
        lines = self.storage_log.read_text(encoding="utf-8", errors="replace")
        return Counter(re.findall(rf'"{verb} /{BUCKET}/([^ ?]+) HTTP', lines))


def make_user(endpoint: str) -> dict[str, str]:
    """Make the bucket and a user who may use it; four requests, after which the server trusts nobody."""
    import boto3

    options = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    nobody = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    iam = boto3.client("iam", **options, **nobody)
    iam.create_user(UserName="nightly")
    statement = {
        "Effect": "Allow",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="nightly", PolicyName="bucket", PolicyDocument=policy)
    key = iam.create_access_key(UserName="nightly")["AccessKey"]
    boto3.client("s3", **options, **nobody).create_bucket(Bucket=BUCKET)
    names = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey"}
    return {variable: key[name] for variable, name in names.items()}


@pytest.fixture(scope="module")
def production(
    tmp_path_factory: pytest.TempPathFactory, project: Path, new_store: Any
) -> Iterator[Production]:
    """A copy of the project outside any repository, and both servers."""
    place = tmp_path_factory.mktemp("production")
    copy, scratch, server = (place / name for name in ("project", "scratch", "server"))
    for name in ("conf", "src"):
        shutil.copytree(
            project / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    shutil.copy(project / "pyproject.toml", copy)
    new_store(copy / "data" / "store")
    scratch.mkdir()
    plugin = server / "plugin" / "guarded-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: guarded\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[mlflow.app]\nguarded = guarded:app\n")
    (plugin.parent / "guarded.py").write_text(GUARD)
    port = free_port()
    with (
        serving(
            *("moto.server", "-H", "127.0.0.1", "-p", str(port)),
            port=port,
            log=place / "moto.log",
            INITIAL_NO_AUTH_ACTION_COUNT="4",
        ) as storage,
        serving_mlflow(
            *(server, "--app-name=guarded"),
            PYTHONPATH=str(plugin.parent),
            GUARD=basic(USER, PASSWORD),
        ) as tracking,
    ):
        variables = {
            **make_user(storage),
            "AWS_ENDPOINT_URL": storage,
            "AWS_DEFAULT_REGION": "us-east-1",
            "ANMI_DATA_ROOT": ROOT,
            "MLFLOW_TRACKING_URI": tracking,
            "MLFLOW_TRACKING_USERNAME": USER,
            "MLFLOW_TRACKING_PASSWORD": PASSWORD,
            "TMPDIR": str(scratch),
            "COLUMNS": "200",
        }
        yield Production(copy, scratch, place / "moto.log", server, variables)


@dataclass
class Finished:
    """What a whole run left."""

    said: str
    run_id: str
    objects: dict[str, bytes]
    downloads: Counter[str]


@pytest.fixture(scope="module")
def finished(production: Production, project: Path) -> Finished:
    """One run through all stages, as small as the tests' environment makes it."""
    text = (project / "conf" / "test" / "parameters.yml").read_text(encoding="utf-8")
    sizes = flatten(yaml.safe_load(text)) | {"training.options.epochs": 1}
    sizes["search.parts"] = "+".join(sizes["search.parts"])
    parameters = ",".join(f"{key}={value}" for key, value in sizes.items())
    done = production.kedro(*documented("kedro run"), "--params", parameters)
    assert done.returncode == 0, done.stdout + done.stderr
    downloads = production.requests("GET")
    objects = production.objects()
    (manifest,) = [key for key in objects if key.endswith("/run.json")]
    return Finished(done.stdout + done.stderr, manifest.split("/")[-2], objects, downloads)


def test_every_artifact_lies_in_the_bucket(finished: Finished) -> None:
    manifest = json.loads(finished.objects[f"nightly/runs/{finished.run_id}/run.json"])
    assert manifest["status"] == "finished"
    assert manifest["environment"] == "prod"
    assert manifest["git"] == {}, "the project was run outside a repository"
    assert {each["version"] for each in manifest["saved"].values()} == {finished.run_id}
    assert len(manifest["saved"]) > 30
    stages = {re.sub(r"nightly/[^/]+/([^/.]+).*", r"\1", key) for key in finished.objects}
    assert {re.sub(r"\..*", "", name) for name in manifest["saved"]} <= stages
    complete = [key for key in finished.objects if key.endswith("/_complete")]
    folders = {key.removesuffix("/_complete") for key in complete}
    names = {folder.split("/")[-1] for folder in folders}
    assert names >= {"trained_model", "selection", "bm25_index", "negatives"}
    for key in finished.objects:
        # nightly/STAGE/NAME/VERSION/NAME, and what a folder holds.
        _, stage, name, version, *rest = key.split("/")
        if stage != "runs":
            assert (version, rest[0]) == (finished.run_id, name), key
            assert len(rest) == 1 or f"nightly/{stage}/{name}/{version}/{name}" in folders, key


def test_a_run_downloads_nothing_that_it_made(finished: Finished) -> None:
    assert [key for key in finished.downloads if "/runs/" not in key] == []


def test_nothing_is_written_beside_the_store(
    production: Production, finished: Finished, project: Path
) -> None:
    names = {path.relative_to(production.project) for path in production.project.rglob("*")}
    written = {name for name in names if not (project / name).exists()}
    # Kedro-Viz notes the states of the last run's nodes for its picture.
    folders = {name.parts[0] for name in written if "__pycache__" not in name.parts}
    assert folders <= {"data", ".viz"}
    assert [path.name for path in (production.project / "data").iterdir()] == ["store"]
    assert not list(production.scratch.glob("anmi*"))


def test_the_server_has_the_whole_run(
    production: Production, finished: Finished, monkeypatch: Any
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    address = production.variables["MLFLOW_TRACKING_URI"]
    with pytest.raises(MlflowException, match="a name and a password are needed"):
        MlflowClient(tracking_uri=address).search_experiments()
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, production.variables[name])
    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("anmi")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["training.options.epochs"] == "1"
    assert run.data.metrics["all/anmi.ndcg_at_10"] > 0
    assert run.data.tags["run_id"] == finished.run_id
    (report,) = (production.server / "files").rglob("report.html")
    (manifest,) = (production.server / "files").rglob("run.json")
    name = f"nightly/08_reporting/report.html/{finished.run_id}/report.html"
    assert report.read_bytes() == finished.objects[name]
    name = f"nightly/runs/{finished.run_id}/run.json"
    assert json.loads(manifest.read_bytes()) == json.loads(finished.objects[name])


def test_the_page_names_the_variables_that_are_needed(production: Production) -> None:
    page = PAGE.read_text(encoding="utf-8")
    exported = set(re.findall(r"^export (\w+)=", page, flags=re.MULTILINE))
    assert exported == production.variables.keys() - {"AWS_ENDPOINT_URL", "TMPDIR", "COLUMNS"}


def test_another_process_reads_the_results(production: Production, finished: Finished) -> None:
    before = production.requests("GET")
    done = production.kedro(*documented("kedro anmi results"))
    assert done.returncode == 0, done.stderr
    assert f"{ROOT}/08_reporting/report.html/{finished.run_id}/report.html" in done.stdout
    query = re.search(r"next: kedro anmi explain --env prod (\S+)", done.stdout)
    assert query
    downloads = production.requests("GET") - before
    # The notes of a run may still change.
    assert max(n for name, n in downloads.items() if not name.endswith("/run.json")) == 1
    explained = production.kedro("anmi", "explain", "--env", "prod", query[1])
    assert explained.returncode == 0, explained.stderr
    assert "relevant" in explained.stdout
    assert not list(production.scratch.glob("anmi*"))


def test_no_secret_is_kept_anywhere(production: Production, finished: Finished) -> None:
    key, token = production.variables["AWS_SECRET_ACCESS_KEY"], basic(USER, PASSWORD).split()[1]
    paths = [*production.project.rglob("*"), *production.server.rglob("*")]
    contents = {str(path): path.read_bytes() for path in paths if path.is_file()}
    contents |= finished.objects | {"console": finished.said.encode()}
    assert len(contents) > 100
    for name, content in contents.items():
        assert not [secret for secret in (key, PASSWORD, token) if secret.encode() in content], name


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong-secret-0123"}, "check the credentials"),
        ({"MLFLOW_TRACKING_PASSWORD": "wrong-password"}, "MLFLOW_TRACKING_URI"),
        ({"MLFLOW_TRACKING_URI": ""}, "MLFLOW_TRACKING_URI"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    production: Production, finished: Finished, variables: dict[str, str], said: str
) -> None:
    done = production.kedro("run", "--env", "prod", "--pipelines", "ingestion", **variables)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert re.search(said, line)
    assert "wrong" not in done.stdout + done.stderr
    objects = production.objects()
    assert not [key for key in objects if "/ingestion/" in key and finished.run_id not in key]
