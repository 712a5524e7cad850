"""Judging on an NVIDIA GPU: captured launches replayed by a worker that never runs a candidate's Python."""
