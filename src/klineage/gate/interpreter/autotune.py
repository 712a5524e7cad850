# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Fault: ``@triton.autotune`` with more than one configuration times them, which needs a GPU.

Cure: one configuration runs: the one named for the kernel, else the one at the chosen index, among those that the
kernel's own pruning keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from triton.runtime import autotuner as native


@dataclass
class Choice:
    """Which configuration runs.

    ``named`` maps a kernel's name to meta-parameters ("BLOCK": "128") that must match; ``printed`` holds a
    configuration as text (or None) for each launch in order, and ``launches`` counts those made. With ``trials`` the
    first launch of a tuner runs another configuration before it, as tuning does on a GPU; ``trying`` says that such a
    run is under way. ``most`` is the largest number of configurations met.
    """

    index: int = 0
    printed: list[str | None] = field(default_factory=list[str | None])
    launches: int = 0
    named: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    most: int = 1  # configurations that any tuner had
    trials: bool = False
    trying: bool = False


CHOICE = Choice()


def pick(configs: list[Any], kernel: str, every: list[Any] | None = None) -> Any:
    """The configuration to run. ``every`` holds those too that were pruned, which only printed ones may be.

    Raises ValueError when a named one is not among ``configs``.
    """
    CHOICE.most = max(CHOICE.most, len(configs))
    if CHOICE.launches < len(CHOICE.printed) and (text := CHOICE.printed[CHOICE.launches]):
        for config in every or configs:
            if str(config) == text:
                return config
        raise ValueError(f"no configuration of {kernel} prints as {text}")
    wanted = CHOICE.named.get(kernel)
    if wanted is None:
        return configs[CHOICE.index % len(configs)]
    for config in configs:
        have = {k: str(v) for k, v in config.all_kwargs().items()}
        if all(have.get(k) == v for k, v in wanted.items()):
            return config
    raise ValueError(f"no configuration of {kernel} matches {wanted}")


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    try:
        configs = self.configs if len(self.configs) == 1 else self.prune_configs(kwargs)
        config = self.best_config = pick(list(configs), self.base_fn.__name__, self.configs)
        meta = config.all_kwargs()
        if clash := sorted(kwargs.keys() & config.kwargs.keys()):
            raise ValueError(f"conflicting meta-parameters: {', '.join(clash)}")
        _try_another(self, list(configs), config, args, kwargs)
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **meta})
        return self.fn.run(*args, **kwargs, **meta)
    finally:
        self.nargs = None


def _try_another(tuner: Any, configs: list[Any], chosen: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Once per tuner, a trial run before the real one, with the hooks Triton would call: a kernel that works on its
    own output shows whether tuning spoils it."""
    others = [c for c in configs if c is not chosen]
    if not CHOICE.trials or not others or getattr(tuner, "_klineage_tried", False):
        return
    tuner._klineage_tried = True
    CHOICE.trying = True
    try:
        names = {**tuner.nargs, **kwargs}
        meta = {**names, **others[0].all_kwargs()}
        if others[0].pre_hook is not None:
            others[0].pre_hook(meta)
        tuner.pre_hook(meta)
        tuner.fn.run(*args, **kwargs, **others[0].all_kwargs())
        tuner.post_hook(meta, exception=None)
        tuner.pre_hook({**names, **chosen.all_kwargs()}, reset_only=True)
    finally:
        CHOICE.trying = False


def patch_autotune() -> None:
    """Run one configuration instead of timing all."""
    native.Autotuner.run = _run
