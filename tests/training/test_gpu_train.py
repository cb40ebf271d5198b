"""The script that measures training on a GPU, in the form that runs without one."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


resuming = load(Path(__file__).with_name("resuming.py"))
gpu_train = load(Path(__file__).parents[2] / "benchmarks" / "gpu_train.py")


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "tiny"
    encoder = resuming.bert(tmp_path / "network")
    encoder.max_seq_length = 16
    encoder.save(str(folder), create_model_card=False)
    return folder


def test_on_a_cpu_every_cell_runs_and_nothing_is_recorded(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu_train, "DATA", tmp_path)
    before = gpu_train.RESULT.read_bytes() if gpu_train.RESULT.exists() else None
    rows = gpu_train.main(["--device", "cpu", "--only", "--encoder", str(tiny), "--batch", "4", "--negatives", "2"])
    assert [row["system"] for row in rows] == list(gpu_train.SYSTEMS)
    for row in rows:
        assert row["encoder"] == "tiny"
        assert row["fits"]
        assert row["texts"] == "random words"
        assert row["precision"] == "float32"
        assert row["flops_share"] is None
        assert row["pairs_per_second"] == pytest.approx(4 / row["step_seconds"], rel=0.05)
        # Four rows of four texts, none longer than the limit.
        assert 0 < row["tokens_per_second"] * row["step_seconds"] <= 4 * 4 * 16 * 1.01
    assert "say nothing about a GPU" in capsys.readouterr().out
    assert (gpu_train.RESULT.read_bytes() if gpu_train.RESULT.exists() else None) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(SystemExit, match="no CUDA device here"):
        gpu_train.main([])


def test_flops_are_those_that_torch_counts():
    encoder = gpu_train.load_encoder("minilm", Path())
    features = {"input_ids": torch.randint(1000, 2000, (2, 64)), "attention_mask": torch.ones(2, 64, dtype=torch.long)}
    with FlopCounterMode(display=False) as counter:
        encoder(features)["sentence_embedding"].sum().backward()
    assert gpu_train.model_flops(encoder, np.array([64, 64])) == pytest.approx(counter.get_total_flops(), rel=0.05)


def test_peaks_go_by_whole_words_of_a_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, peak in {"NVIDIA H100 PCIe": 756e12, "NVIDIA L40S": 362e12, "NVIDIA RTX A1000": None}.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _, name=name: name)
        assert gpu_train.peak_flops(None) == peak
    assert gpu_train.peak_flops(100) == 1e14
