"""What is said, and what is kept, when numbers or memory fail."""

import resource

import pytest
from tests.training import resuming
from torch import nn

from anmi.errors import AnmiError
from anmi.training.loop import CheckpointPlan

PLAIN = {"learning_rate": 0.05}


class Kink(nn.Module):
    """Changes no embedding; when ``on``, its gradient is 0 · ∞."""

    on = False

    def forward(self, features):
        if self.on:
            embedding = features["sentence_embedding"]
            features["sentence_embedding"] = embedding + (embedding * 0).sqrt()
        return features


def kinked(*, after_epoch=None):
    """An encoder whose gradient fails from the end of an epoch on, and the metric that sees to it."""
    encoder, epochs, kink = resuming.static(), [0], Kink()
    encoder.append(kink)

    def evaluate(_):
        epochs[0] += 1
        kink.on = epochs[0] == after_epoch
        return 0.5

    return encoder, evaluate


def test_nan_gradient_is_named():
    encoder, evaluate = kinked(after_epoch=2)
    with pytest.raises(AnmiError, match=r"gradient became nan in the batch with the queries q\d+, q\d+"):
        resuming.fit(encoder, None, evaluate, **PLAIN)


def test_a_full_disk_does_not_end_a_training(tmp_path, caplog):
    # The limit on the size of files stands for the disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        result = resuming.fit(resuming.static(), CheckpointPlan(tmp_path), epochs=1, **PLAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.summary["steps"] == 6
    assert "No checkpoint could be written" in caplog.text


def test_out_of_memory_says_what_to_change():
    encoder = resuming.static()

    def fail(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")

    encoder[1].register_forward_hook(fail)
    with pytest.raises(AnmiError) as caught:
        resuming.fit(encoder, None, batch_size=600, **PLAIN)
    said = str(caught.value)
    assert "memory of the machine does not suffice for a batch of 22 queries and 22 documents: " in said
    assert "lower negatives (now 2), or lower batch_size (now 600)" in said
    assert "max_length" not in said, "a static encoder has none"
