import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_garbage_collection():
    """Every training ends with a garbage collection by accelerate, which would walk all of torch each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
