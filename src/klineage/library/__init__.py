"""Skills as files a person can review in git."""

from .files import LibraryError, file_stem, load_library, load_skill, save_skill, shipped_library
from .text import skill_to_text

__all__ = [
    "LibraryError",
    "file_stem",
    "load_library",
    "load_skill",
    "save_skill",
    "shipped_library",
    "skill_to_text",
]
