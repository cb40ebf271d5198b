"""A long step is seen in a log, too."""

import pytest

from anmi.engine import progress


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (2000, "encoding: 800 of 2,000 texts, 10 a second, 2 minutes left"),
        (None, "encoding: 800 texts, 10 a second"),
    ],
)
def test_a_long_step_has_a_line_a_minute_where_no_bar_is_shown(
    monkeypatch, caplog, total, expected
):
    caplog.set_level("INFO")
    seconds = iter([100.0, 130.0, 160.0, 190.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    # No terminal shows it here.
    bar = progress.Progress(total=total, desc="encoding")
    for count in (200, 300, 300, 300):
        bar.update(count)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == expected
