"""Many short questions to an OpenAI-compatible chat endpoint: paced, retried, and given up on in the end."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from anmi import seeds
from anmi.errors import AnmiError

if TYPE_CHECKING:
    import httpx

# Replies that say that the endpoint is not what was meant, where none came that says otherwise.
_MISTAKEN: Final = (301, 302, 303, 307, 308, 401, 403, 404, 405)
_WORTH_RETRYING: Final = (408, 425, 429)
_SIZE_LIMIT: Final = 1 << 20
# Capitals only, as is customary: keys have small letters, and one that is put here by mistake must not be recorded.
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_SENT_AT_ONCE: Final = 4096


class EndpointOptions(BaseModel):
    """Which endpoint is asked, and how patiently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = Field(
        description="Address that /chat/completions is appended to, for example https://api.openai.com/v1; without "
        "credentials, since parameters are recorded."
    )
    model: str = Field(min_length=1, description="Name of the model at the endpoint.")
    key_variable: str | None = Field(
        None,
        description="Environment variable that holds the API key, in capitals; none for servers that ask for no key.",
    )
    max_tokens: int | None = Field(
        8, ge=1, description="Length of the answer; one word is wanted. Empty for models that think aloud first."
    )
    requests_per_second: float = Field(
        5.0, gt=0, description="Retries among them; 300 a minute is within the lowest tiers of usual providers."
    )
    concurrency: int = Field(4, ge=1, le=256, description="Requests under way at once; enough for answers in 0.8 s.")
    timeout: float = Field(60.0, gt=0, description="Seconds to wait for one answer; large models queue for many.")
    retries: int = Field(5, ge=0, description="After a first failure; with the back-off they bridge half a minute.")
    backoff: float = Field(1.0, gt=0, description="Seconds before the first retry, doubled at each further one.")
    longest_wait: float = Field(60.0, gt=0, description="Bound of a wait in seconds, also of one the server asks for.")
    give_up_after: int = Field(
        20, ge=1, description="Questions failing one after the other after which the rest is left unasked."
    )

    @field_validator("key_variable")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            # Not a ValueError: pydantic would show the value, and it may be the key itself.
            raise AnmiError(
                "key_variable of the chat endpoint is no name of an environment variable such as OPENAI_API_KEY; "
                "parameters are recorded, so put the key into a variable and its name here"
            )
        return value

    @field_validator("base_url")
    @classmethod
    def _plain(cls, value: str) -> str:
        return plain_address(value)


def plain_address(value: str) -> str:
    """Return the address of an endpoint without a slash at its end.

    Raises
    ------
    AnmiError
        It holds credentials, a query or a fragment, which would be recorded.
    ValueError
        It is no http or https address.

    Examples
    --------
    >>> plain_address("https://api.openai.com/v1/")
    'https://api.openai.com/v1'
    """
    parts = urlsplit(value)
    # Anywhere, since in an address without its scheme the password stands in the path.
    if "@" in value or parts.query or parts.fragment:
        # Not a ValueError: pydantic would show the value.
        raise AnmiError(
            "base_url of the chat endpoint holds more than an address; parameters are recorded, so leave "
            "credentials, query and fragment out and name the key's environment variable in key_variable"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https address such as https://api.openai.com/v1")
    return value.rstrip("/")


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes
    ----------
    text, problem
        The answer, or the kind of problem because of which there is none.
    milliseconds
        That the last request for it took.
    tokens_read, tokens_written
        As the endpoint counts and bills them; None where it does not say.
    """

    text: str = ""
    problem: str = ""
    milliseconds: float = 0.0
    tokens_read: int | None = None
    tokens_written: int | None = None


class RateLimit:
    """Lets threads through at equal distances, and none while the server asked for a pause.

    Parameters
    ----------
    per_second
        Requests per second.
    stop
        Ends all waiting when set.
    """

    def __init__(self, per_second: float, stop: threading.Event) -> None:
        self._interval, self._stop = 1.0 / per_second, stop
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self) -> None:
        """Return when it is the caller's turn."""
        with self._lock:
            slot = max(time.monotonic(), self._next)
            self._next = slot + self._interval
        self._stop.wait(max(slot - time.monotonic(), 0.0))

    def pause(self, seconds: float) -> None:
        """Let nobody new through for so many seconds."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


class Endpoint:
    """An OpenAI-compatible chat endpoint.

    Parameters
    ----------
    options
        Where it is and how patiently it is asked.
    seed
        Of the run; keys the jitter of the back-off.

    Raises
    ------
    AnmiError
        The environment variable of the key is not set.
    """

    def __init__(self, options: EndpointOptions, seed: int) -> None:
        self.options, self._seed = options, seed
        self._headers = {}
        if options.key_variable is not None:
            key = os.environ.get(options.key_variable, "").strip()
            if not key:
                raise AnmiError(
                    f"the environment variable {options.key_variable} is not set; it must hold the API key of "
                    f"{options.base_url}"
                )
            self._headers["Authorization"] = f"Bearer {key}"
        self._stop = threading.Event()
        self._limit = RateLimit(options.requests_per_second, self._stop)
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._reached = False

    def ask(self, questions: Sequence[tuple[str, str]]) -> Iterator[tuple[int, Reply]]:
        """Yield (number of the question, reply) as replies come.

        Parameters
        ----------
        questions
            (system prompt, user prompt) each.

        Raises
        ------
        AnmiError
            The endpoint refuses requests as such: wrong address, model or key.
        """
        import httpx

        self._stop.clear()
        self._failed_in_a_row = 0
        with (
            httpx.Client(headers=self._headers, timeout=self.options.timeout) as client,
            ThreadPoolExecutor(self.options.concurrency) as pool,
        ):
            try:
                # In parts, so that millions of questions do not become millions of waiting tasks.
                for start in range(0, len(questions), _SENT_AT_ONCE):
                    part = range(start, min(start + _SENT_AT_ONCE, len(questions)))
                    futures = {pool.submit(self._reply, client, *questions[number]): number for number in part}
                    for future in as_completed(futures):
                        yield futures[future], future.result()
            finally:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _reply(self, client: httpx.Client, system: str, user: str) -> Reply:
        reply = Reply(problem="not asked any more")
        for attempt in range(self.options.retries + 1):
            if self._stop.is_set():
                break
            self._limit.wait()
            begun = time.monotonic()
            reply, again = self._once(client, system, user)
            reply = replace(reply, milliseconds=1000 * (time.monotonic() - begun))
            if not again:
                break
            if attempt < self.options.retries:
                jitter = 0.5 + seeds.stream(self._seed, f"endpoint/back-off/{attempt}", user).random()
                self._stop.wait(min(self.options.backoff * 2**attempt * jitter, self.options.longest_wait))
        with self._lock:
            self._failed_in_a_row = self._failed_in_a_row + 1 if reply.problem else 0
            if self._failed_in_a_row >= self.options.give_up_after:
                self._stop.set()
        return reply

    def _once(self, client: httpx.Client, system: str, user: str) -> tuple[Reply, bool]:
        """One request: the reply, and whether it is worth another one."""
        import httpx

        body = {
            "model": self.options.model,
            "temperature": 0,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        } | ({} if self.options.max_tokens is None else {"max_tokens": self.options.max_tokens})
        try:
            status, retry_after, content = self._post(client, body)
        except httpx.TimeoutException:
            return Reply(problem="timed out"), True
        except httpx.TransportError as error:
            return Reply(problem=type(error).__name__), True
        except httpx.RequestError as error:
            return Reply(problem=type(error).__name__), False
        if status in _MISTAKEN and not self._reached:
            raise AnmiError(
                f"{self.options.base_url}/chat/completions answered with status {status} for the model "
                f'"{self.options.model}"; check base_url, model and the key in '
                f"{self.options.key_variable or 'key_variable, of which there is none'}"
            )
        if status != 200:
            again = status in _WORTH_RETRYING or status >= 500
            if again and retry_after is not None:
                self._limit.pause(min(retry_after, self.options.longest_wait))
            return Reply(problem=f"status {status}"), again
        self._reached = True
        return _content(content), False

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> tuple[int, float | None, bytes]:
        """Return status, seconds to wait if the server names them, and the content."""
        import httpx

        # The client's own time-out starts anew with every byte; a server that dribbles would hold a thread for ever.
        deadline = time.monotonic() + self.options.timeout
        content = bytearray()
        with client.stream("POST", f"{self.options.base_url}/chat/completions", json=body) as response:
            for part in response.iter_bytes():
                content += part
                if time.monotonic() > deadline or len(content) > _SIZE_LIMIT:
                    raise httpx.ReadTimeout("the answer does not end")
            return response.status_code, _seconds(response.headers.get("Retry-After")), bytes(content)


def _content(content: bytes) -> Reply:
    try:
        found = json.loads(content)
        text = found["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return Reply(problem="malformed answer")
    if not isinstance(text, str):
        return Reply(problem="malformed answer")
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    read, written = (
        int(count) if isinstance(count := counted.get(f"{side}_tokens"), int) else None
        for side in ("prompt", "completion")
    )
    return Reply(text, tokens_read=read, tokens_written=written)


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds a number of them or a date (RFC 9110, 10.2.3).

    Examples
    --------
    >>> _seconds("2"), _seconds("soon"), _seconds("Wed, 21 Oct 2015 07:28:00 GMT")
    (2.0, None, 0.0)
    """
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
