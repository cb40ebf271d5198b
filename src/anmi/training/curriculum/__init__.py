"""Curricula: in which order, and how hard, negatives are met; schedules: from which sources they come."""

from anmi.training.curriculum.build import build_curriculum
from anmi.training.curriculum.protocol import Curriculum, State

__all__ = ["Curriculum", "State", "build_curriculum"]
