"""The image: what can be known of it without building it."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return name and rest of every instruction, lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [
        (name, rest) for name, _, rest in (line.partition(" ") for line in lines if line.strip())
    ]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[max(number for number, (name, _) in enumerate(found) if name == "FROM") :]


def is_sent(path: Path) -> bool:
    """Tell whether .dockerignore lets a path of the repository through: the last rule that matches decides."""
    sent = True
    name = path.relative_to(ROOT).as_posix()
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        names = [name, *(parent.as_posix() for parent in Path(name).parents if parent != Path())]
        deep = rule.removeprefix("!").startswith("**/")
        if any(fnmatch(each.rpartition("/")[2] if deep else each, pattern) for each in names):
            sent = rule.startswith("!")
    return sent


def test_everything_copied_is_there_and_sent() -> None:
    copied = [
        rest.split()[:-1]
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
    ]
    sources = [ROOT / source for group in copied for source in group]
    assert {"src", "conf", "requirements.lock"} <= {source.name for source in sources}
    for source in sources:
        assert source.exists(), source
        assert is_sent(source), f"{source} is kept out by .dockerignore"


def test_what_may_hold_secrets_or_data_is_not_sent() -> None:
    for name in (
        "conf/local/credentials.yml",
        ".git/config",
        "data/store/data.mdb",
        ".venv/bin/kedro",
        "deploy/x.env",
    ):
        assert not is_sent(ROOT / name), name
    assert is_sent(ROOT / "conf/prod/globals.yml")
    assert is_sent(ROOT / "src/anmi/report/report.html.jinja")


def test_nothing_is_asked_for_that_looks_like_a_secret() -> None:
    given = [rest for name, rest in instructions() if name in ("ARG", "ENV")]
    assert not re.findall(r"(?i)secret|password|token|_key|credential", " ".join(given))


def test_it_runs_as_nobody_in_particular_and_gets_signals_and_arguments_itself() -> None:
    stage = dict(last_stage())
    # In numbers, for only those can a cluster check without looking into the image.
    assert [int(part) > 0 for part in stage["USER"].split(":")] == [True, True]
    assert (json.loads(stage["ENTRYPOINT"]), json.loads(stage["CMD"])) == (["kedro"], ["run"])
    assert json.loads(stage["VOLUME"]) == ["/data", "/store"]
    assert "HEALTHCHECK" not in stage, (
        "a batch job is done or not; it serves nothing that could be asked"
    )


def test_the_lock_names_the_torch_that_is_installed_first() -> None:
    (pinned,) = re.findall(
        r"^torch==\S+$", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert "+" not in pinned, "a local version would exist in one index only"


def test_rules_after_the_allowed_ones_still_count() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    last = max(number for number, rule in enumerate(rules) if rule.startswith("!"))
    assert min(map(rules.index, ("conf/local", "**/__pycache__"))) > last
