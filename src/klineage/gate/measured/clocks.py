"""The clocks a GPU runs at, from NVML when the driver has it."""

from __future__ import annotations

import ctypes
from typing import Any

_SM, _MEMORY = 1, 2  # nvmlClockType_t


class Clocks:
    """Reads the present clocks of one device; answers None for good once NVML is missing or refuses."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._device = ctypes.c_void_p()
        try:
            self._nvml: Any = library or ctypes.CDLL("libnvidia-ml.so.1")
            found = self._nvml.nvmlInit_v2() == 0 and self._nvml.nvmlDeviceGetHandleByUUID(
                uuid.encode(), ctypes.byref(self._device)
            ) == 0  # fmt: skip
        except (OSError, AttributeError):
            found = False
        if not found:
            self._nvml = None

    def read(self) -> tuple[int, int] | None:
        """SM and memory clock in MHz."""
        if self._nvml is None:
            return None
        found: list[int] = []
        for kind in (_SM, _MEMORY):
            value = ctypes.c_uint()
            if self._nvml.nvmlDeviceGetClockInfo(self._device, kind, ctypes.byref(value)) != 0:
                self._nvml = None
                return None
            found.append(value.value)
        return found[0], found[1]
