"""What leaves KLineage: skills for agents, and training data."""

from .evidence import EvidenceFile, export_evidence, import_evidence
from .skills import FORMATS, export_skills, skill_index
from .training import HELD_OUT, KINDS, Dataset, training_data, write_dataset

__all__ = [
    "FORMATS",
    "HELD_OUT",
    "KINDS",
    "Dataset",
    "EvidenceFile",
    "export_evidence",
    "export_skills",
    "import_evidence",
    "skill_index",
    "training_data",
    "write_dataset",
]
