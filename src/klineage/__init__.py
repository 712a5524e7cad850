"""KLineage: when is a GPU-kernel optimisation sound and worth it? (method: arXiv 2605.28213)"""

__version__ = "0.1.0"
