"""Old names of parameters work for one version, and say so."""

from __future__ import annotations

import logging

import pytest

from anmi import renamed
from anmi.evaluation.promotion import PromotionRule
from anmi.pipelines.audit.params import AuditParams
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.selection.recipe import Step


@pytest.fixture(autouse=True)
def _anew() -> None:
    renamed._warn.cache_clear()


def test_an_old_name_is_read_and_the_new_one_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert AuditParams(max_leak=0.1).max_false_negative_rate == 0.1  # type: ignore[call-arg]
    assert [record.message for record in caplog.records] == [
        "audit.max_leak is now called audit.max_false_negative_rate; the old name works for one more version"
    ]


def test_all_old_names_stand_for_the_new_ones() -> None:
    assert DenoisingParams(**{"teacher": {"folds": 4}}).cross_encoder.folds == 4
    assert PromotionRule(**{"max_leak": 0.2}).max_false_negative_rate == 0.2
    assert Step(**{"route": {"max_leak": 0.02}}).params.max_expected_share == 0.02


def test_what_a_user_gives_under_the_old_name_goes_before_the_configuration() -> None:
    both = {"cross_encoder": {"layers": 1, "folds": 2}, "teacher": {"folds": 4}}
    found = DenoisingParams(**both).cross_encoder
    assert (found.layers, found.folds) == (1, 4)


def test_without_an_old_name_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert AuditParams(max_false_negative_rate=0.1).max_false_negative_rate == 0.1
    assert renamed.with_new_names(3, {"a": "b"}, "x") == 3
    assert not caplog.records
