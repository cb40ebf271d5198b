"""Training of dense retrievers: losses, temperature, batch assembly and the trainer.

``options`` is light; every other module of this room imports torch, so callers above import them
inside functions.
"""
