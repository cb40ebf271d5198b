"""Secrets are refused where they would be recorded, and masked in all that is shown or written."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError, first_line, holds_address_secret, masked, visible
from anmi.hooks.checks import check_model, check_no_secrets, mask_error, mask_logs
from anmi.hooks.record import RunRecord, data_root
from anmi.judging.endpoint import Endpoint, EndpointOptions

MARK = "Zq7Leak"
# As people write them; only blanks, quotes and angle brackets cannot stand in an address.
passwords = st.text("abcXYZ019!$%&*+,-./:;=?@_~^|", min_size=1, max_size=12).map(
    lambda text: f"{MARK}{text}"
)


@given(
    passwords,
    st.sampled_from(("https", "s3", "postgresql+psycopg2", "mysql")),
    st.sampled_from(("", ":8080", "/a@b")),
)
@settings(max_examples=300)
def test_no_password_is_left_of_an_address(password: str, scheme: str, rest: str) -> None:
    for before, after in (("", ""), ("failed at ", " (refused)"), ("url='", "'"), ("<", ">")):
        text = f"{before}{scheme}://user:{password}@host{rest}/x{after}"
        assert MARK not in masked(text)
        assert masked(text).startswith(before)
        assert holds_address_secret(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"https://{MARK}@github.com/a", "https://***@github.com/a"),
        (f"https://h/a?token={MARK}&b=1", "https://h/a?token=***&b=1"),
        (f"https://h/a?X-Amz-Signature={MARK}", "https://h/a?X-Amz-Signature=***"),
        (f"https://h/a?b=1&AccessKey={MARK}#x", "https://h/a?b=1&AccessKey=***"),
        (f"//user:{MARK}@host", "//***@host"),
    ],
)
def test_tokens_and_signed_addresses_are_masked(text: str, left: str) -> None:
    assert masked(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "pairs:/data/a.jsonl@100",
        "beir:../shared/data/scifact",
        "https://host:8080/a@b",
        "user@example.org writes",
        "s3://bucket/prefix@v2",
        "https://api.openai.com/v1",
        "a//b c@d",
        "sqlite:////home/me/mlflow.db",
    ],
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert masked(text) == text
    assert not holds_address_secret(text)


def test_a_sentence_for_the_user_quotes_no_secret_and_no_command() -> None:
    error = AnmiError(f"https://u:{MARK}@h answered \x1b]0;owned\x07 and \u202egnp.exe")
    for shown in (str(error), repr(error), "".join(map(str, error.args))):
        assert MARK not in shown
        assert not set(shown) & set("\x1b\x07\u202e")
    assert visible("two\nlines\tremain") == "two\nlines\tremain"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"collection": f"beir:https://u:{MARK}@h/x"}, "collection"),
        ({"denoising": {"chat": {"base_url": f"https://{MARK}@h/v1"}}}, "denoising.chat.base_url"),
        ({"bm25": {"places": [f"s3://k:{MARK}@b"]}}, "bm25.places"),
    ],
)
def test_a_parameter_with_a_secret_is_refused_by_its_name(
    parameters: dict[str, Any], name: str
) -> None:
    with pytest.raises(AnmiError, match=f'^parameter "{name}" holds') as caught:
        check_no_secrets(parameters)
    assert MARK not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": f"https://u:{MARK}@host/v1", "model": "m"},
        {"base_url": f"u:{MARK}@host/v1", "model": "m"},
        {"base_url": f"https://host/v1?key={MARK}", "model": "m"},
        {"base_url": "https://host/v1", "model": "m", "key_variable": f"sk-{MARK}"},
        {"base_url": "https://host/v1", "model": "m", "key_variable": f"hf_{MARK}"},
        {"base_url": "https://host/v1", "model": "m", "api_key": MARK},
    ],
)
def test_a_wrong_option_of_the_endpoint_does_not_repeat_the_secret(options: dict[str, Any]) -> None:
    with pytest.raises(AnmiError) as caught:
        check_model("chat", {"chat": options}, EndpointOptions)
    assert MARK not in str(caught.value)


def test_the_key_stays_in_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", f"sk-{MARK}")
    options = EndpointOptions(
        base_url="http://127.0.0.1:9/v1", model="m", key_variable="JUDGE_KEY", retries=0
    )
    endpoint = Endpoint(options)
    ((_, reply),) = endpoint.ask([("system", "user")])
    assert reply.problem
    assert MARK not in repr(reply) + repr(options) + options.model_dump_json() + repr(endpoint)


def test_the_record_has_no_secret_even_where_nothing_was_refused() -> None:
    address = f"s3://k:{MARK}@b"
    record = RunRecord(runtime_parameters={"a": address}, parameters={"b": {"c": [address]}})
    record.finish(RuntimeError(f"no answer from https://u:{MARK}@h"))
    assert MARK not in record.as_text()
    assert record.error == "RuntimeError: no answer from https://***@h"


def test_a_long_message_is_masked_before_it_is_cut() -> None:
    told = first_line(RuntimeError("x" * 180 + f" https://user:{MARK}-{'y' * 60}@host"))
    assert MARK not in told
    assert len(told) <= 201


def test_logged_lines_are_masked_whoever_logs(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogRecordFactory()
    try:
        mask_logs()
        for name in ("anmi.x", "urllib3.connectionpool", "mlflow"):
            logging.getLogger(name).warning("cannot reach %s", f"https://u:{MARK}@h")
        logging.getLogger("anmi.x").warning("half of %s is %d %%", "it", 50)
    finally:
        logging.setLogRecordFactory(before)
    assert MARK not in caplog.text
    assert "cannot reach https://***@h" in caplog.text
    assert "half of it is 50 %" in caplog.text


def test_a_defect_is_shown_without_the_secret() -> None:
    error = RuntimeError(f"https://u:{MARK}@h")
    error.__cause__ = OSError(5, f"https://u:{MARK}@h")
    mask_error(error)
    assert MARK not in "".join(traceback.format_exception(error))


def test_a_data_root_with_credentials_is_refused() -> None:
    class Context:
        config_loader = {"globals": {"data": f"s3://key:{MARK}@bucket/x"}}  # noqa: RUF012
        project_path = Path()

    with pytest.raises(AnmiError, match="the data root") as caught:
        data_root(Context())
    assert MARK not in str(caught.value)
