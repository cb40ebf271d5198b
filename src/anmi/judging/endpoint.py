"""Many short questions to an OpenAI-compatible chat endpoint, by the openai client."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from anmi.errors import AnmiError, pip_install
from anmi.fingerprint import digest

log = logging.getLogger(__name__)
# Capitals only, as is customary: keys have small letters, and one that is put here by mistake must
# not be recorded.
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
# What models that think aloud say first.
_THOUGHTS: Final = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
# Replies that say that the endpoint is not what was meant.
_MISTAKEN: Final = (401, 403, 404, 405)
_SENT_AT_ONCE: Final = 4096
_GIVE_UP_AFTER: Final = 10
_UNDER_WAY: Final = ("validating", "in_progress", "finalizing")
_LOOKED_AFTER: Final = 20.0
_THIS_MACHINE: Final = re.compile(r"(.+\.)?localhost|127\.\d+\.\d+\.\d+|::1")
# Where Ollama answers.
_LOCAL: Final = "http://127.0.0.1:11434/v1"


class EndpointOptions(BaseModel):
    """Which endpoint is asked, and how patiently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = _LOCAL
    model: str = Field(min_length=1)
    key_variable: str | None = None
    max_tokens: int | None = Field(8, ge=1)
    max_characters: int = Field(4000, ge=100)
    concurrency: int = Field(4, ge=1, le=256)
    timeout: float = Field(60.0, gt=0)
    retries: int = Field(5, ge=0)

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            # Not a ValueError: pydantic would show the value, and it may be the key itself.
            raise AnmiError(
                "key_variable of the chat endpoint is no name of an environment variable such as"
                " OPENAI_API_KEY; parameters are recorded, so put the key into a variable and its"
                " name here"
            )
        return value

    @field_validator("base_url")
    @classmethod
    def _plain(cls, value: str) -> str:
        parts = urlsplit(value)
        # Anywhere, since in an address without its scheme the password stands in the path.
        if "@" in value or parts.query or parts.fragment:
            # Not a ValueError: pydantic would show the value.
            raise AnmiError(
                "base_url of the chat endpoint holds more than an address; parameters are recorded,"
                " so leave credentials, query and fragment out and name the key's environment"
                " variable in key_variable"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an http or https address such as https://api.openai.com/v1")
        return value.rstrip("/")


@dataclass(frozen=True)
class Reply:
    """The answer without thoughts, or why there is none; tokens of question and answer."""

    text: str = ""
    problem: str = ""
    tokens: tuple[int, int] = (0, 0)


class Endpoint:
    """An OpenAI-compatible chat endpoint.

    Raises
    ------
    AnmiError
        The extra ``chat`` is not installed, or the environment variable of the key is not set.
    """

    def __init__(self, options: EndpointOptions) -> None:
        try:
            from openai import OpenAI
        except ImportError as error:
            raise AnmiError(
                "a chat endpoint is asked by the openai client, which is not installed:"
                f" {pip_install('chat')}"
            ) from error
        self.options = options
        key = os.environ.get(options.key_variable, "").strip() if options.key_variable else "none"
        if not key:
            raise AnmiError(
                f"the environment variable {options.key_variable} is not set; it must hold the API"
                f" key of {options.base_url}"
            )
        self._client = OpenAI(
            api_key=key,
            base_url=options.base_url,
            timeout=options.timeout,
            max_retries=options.retries,
        )
        # Where texts go, until that is said; empty for this machine.
        self._host = other_host(options.base_url)
        # Questions in a row that were not answered in time, retries and all.
        self._unreached = 0

    def ask(
        self,
        questions: Sequence[tuple[str, str]],
        schema: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (number of the question, reply) as replies come.

        Parameters
        ----------
        questions
            (system prompt, user prompt) each.
        schema
            JSON schema of the answers; None for plain text.

        Raises
        ------
        AnmiError
            The endpoint cannot be reached, or refuses requests as such: wrong address, model or
            key.
        """
        self._say_what_leaves()
        with ThreadPoolExecutor(self.options.concurrency) as pool:
            try:
                # In parts, so that millions of questions do not become millions of waiting tasks.
                numbers = range(len(questions))
                for start in range(0, len(questions), _SENT_AT_ONCE):
                    number_of = {
                        pool.submit(self._reply, self._body(*questions[number], schema)): number
                        for number in numbers[start : start + _SENT_AT_ONCE]
                    }
                    for future in as_completed(number_of):
                        yield number_of[future], future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def ask_in_batch(
        self,
        questions: Sequence[tuple[str, str]],
        schema: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[int, Reply]]:
        """As :meth:`ask` by the endpoint's batches, which cost less and take up to a day.

        A run that was stopped meanwhile finds the batch again when it asks the same.
        """
        import openai

        self._say_what_leaves()
        requests = [
            {
                "custom_id": str(number),
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": self._body(*question, schema),
            }
            for number, question in enumerate(questions)
        ]
        data = "\n".join(map(json.dumps, requests)).encode()
        try:
            text = self._batch_output(data)
        except openai.OpenAIError as error:
            raise AnmiError(
                f"{self.options.base_url} does no batches ({error.__class__.__name__}): set batch"
                " of the chat endpoint to false, or run again if it did not answer"
            ) from None
        for line in text.splitlines():
            answer = json.loads(line)
            response = answer.get("response") or {}
            yield int(answer["custom_id"]), _read(response.get("body"))

    def _batch_output(self, data: bytes) -> str:
        """Return the lines that the endpoint answers a batch with, once it is done."""
        metadata = {"anmi": digest("batch", data).hex()}
        batches = self._client.batches
        usable = (*_UNDER_WAY, "completed")
        earlier = (
            batch
            for batch in batches.list(limit=100).data
            if batch.metadata == metadata and batch.status in usable
        )
        batch = next(earlier, None)
        if batch is None:
            file = self._client.files.create(file=("questions.jsonl", data), purpose="batch")
            batch = batches.create(
                input_file_id=file.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata=metadata,
            )
        log.info("asking %s in batch %s, which may take a day", self.options.model, batch.id)
        while batch.status in _UNDER_WAY:
            time.sleep(_LOOKED_AFTER)
            batch = batches.retrieve(batch.id)
        if not batch.output_file_id:
            return ""
        return self._client.files.content(batch.output_file_id).text

    def _say_what_leaves(self) -> None:
        """Warn, once, before the first texts are sent to another machine."""
        if self._host:
            log.warning(
                "queries and up to %d characters of each document are sent to %s: a model on this"
                " machine, as at %s, would keep them here",
                self.options.max_characters,
                self._host,
                _LOCAL,
            )
            self._host = ""

    def _body(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        body: dict[str, Any] = {
            "model": self.options.model,
            "temperature": 0,
            "messages": messages,
        }
        if self.options.max_tokens is not None:
            body["max_tokens"] = self.options.max_tokens
        if schema is not None:
            answer = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        return body

    def _reply(self, body: dict[str, Any]) -> Reply:
        import openai

        try:
            answer = self._client.chat.completions.create(**body).model_dump(warnings=False)
        except openai.APIConnectionError as error:
            self._unreached += 1
            if self._unreached >= _GIVE_UP_AFTER:
                raise AnmiError(
                    f"{self.options.base_url} cannot be reached; what it answered so far is stored,"
                    " so run again when it answers, or check base_url"
                ) from error
            timed_out = isinstance(error, openai.APITimeoutError)
            return Reply(problem="timed out" if timed_out else "no connection")
        except openai.APIStatusError as error:
            if error.status_code in _MISTAKEN:
                raise AnmiError(
                    f"{self.options.base_url}/chat/completions answered with status"
                    f" {error.status_code} for the model "
                    f'"{self.options.model}"; check base_url, model and the key in '
                    f"{self.options.key_variable or 'key_variable, of which there is none'}"
                ) from None
            return Reply(problem=f"status {error.status_code}")
        except (openai.OpenAIError, ValueError, AttributeError, TypeError):
            return Reply(problem="malformed answer")
        self._unreached = 0
        return _read(answer)


def other_host(base_url: str) -> str:
    """Return the host of an address, empty for this machine itself.

    Examples
    --------
    >>> hosts = ("localhost", "127.0.0.2", "[::1]", "10.0.0.1")
    >>> [other_host(f"http://{host}:80/v1") for host in hosts]
    ['', '', '', '10.0.0.1']
    """
    host = urlsplit(base_url).hostname or ""
    return "" if _THIS_MACHINE.fullmatch(host) else host


def _read(body: Any) -> Reply:
    """Return what an answer of an endpoint says."""
    try:
        message = body["choices"][0]["message"]
        usage = body.get("usage") or {}
        tokens = (int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
        if isinstance(message.get("content"), str):
            return Reply(_THOUGHTS.sub("", message["content"]), tokens=tokens)
        problem = "refused" if message.get("refusal") else "malformed answer"
        return Reply(problem=problem, tokens=tokens)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return Reply(problem="malformed answer")
