"""The work as a coding agent does it: told in compact text, judged by the same gate, within a budget."""

from .desk import Desk
from .workspace import AgentState, Submission, start, status, submit

__all__ = ["AgentState", "Desk", "Submission", "start", "status", "submit"]
