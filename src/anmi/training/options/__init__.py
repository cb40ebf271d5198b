"""What can be chosen about training; light to import, so that pipelines can check parameters early."""

from anmi.training.options.training import TrainingOptions

__all__ = ["TrainingOptions"]
