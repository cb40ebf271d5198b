"""The chat endpoint and the store that judges are tested with."""

from tests.judging.conftest import server, store  # noqa: F401
