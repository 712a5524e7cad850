"""LibCST parse of a Triton module into sites, and edits back to text with everything else kept."""

from .edit import Editor
from .sites import make_site, sites
from .source import Function, Launch, Module

__all__ = ["Editor", "Function", "Launch", "Module", "make_site", "sites"]
