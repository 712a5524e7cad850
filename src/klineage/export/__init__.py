"""What leaves KLineage: skills for agents, and training data."""

from .skills import FORMATS, export_skills, skill_index
from .training import HELD_OUT, KINDS, Dataset, training_data, write_dataset

__all__ = [
    "FORMATS",
    "HELD_OUT",
    "KINDS",
    "Dataset",
    "export_skills",
    "skill_index",
    "training_data",
    "write_dataset",
]
