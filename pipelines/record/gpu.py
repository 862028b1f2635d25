"""GPU counters from NVML, or an empty row if there is no NVML, driver or GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Row = dict[str, Any]


class Gpus:
    """GPUs visible to NVML. `source`: the source of the counters, or why there is none. Call `close` when done."""

    def __init__(self) -> None:
        self._handles: list[tuple[int, Any, str | None, str | None]] = []
        self._nvml: Any = None
        try:
            pynvml: Any = import_module("pynvml")
        except ImportError:
            self.source = "none: nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.source = f"none: {error}"
            return
        self._nvml, self.source = pynvml, "nvml"
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = self._ask(lambda h=handle: _text(pynvml.nvmlDeviceGetUUID(h)))
            name = self._ask(lambda h=handle: _text(pynvml.nvmlDeviceGetName(h)))
            self._handles.append((index, handle, uuid, name))

    def sample(self) -> list[Row]:
        """Return one row per GPU, or one empty row without GPUs. A counter that a GPU does not report is None."""
        rows = [
            {"gpu_index": index, "gpu_uuid": uuid, "gpu_name": name, **self._counters(handle)}
            for index, handle, uuid, name in self._handles
        ]
        return rows or [{}]

    def close(self) -> None:
        """Release NVML."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def _counters(self, handle: Any) -> Row:
        nvml = self._nvml
        rates = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))  # mW
        sent = self._nvlink(handle, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX")
        received = self._nvlink(handle, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")
        return {
            "sm_util": rates and rates.gpu,
            "mem_util": rates and rates.memory,
            "mem_used_bytes": memory and memory.used,
            "sm_clock_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "mem_clock_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "power_w": None if power is None else power / 1000,
            "temp_c": self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "throttle_mask": self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            "nvlink_tx_kb": sent,
            "nvlink_rx_kb": received,
            # Each of these two calls blocks for 20 ms while NVML counts. They come last, so that the other counters
            # are from nearly the same time.
            "pcie_rx_kbs": self._ask(lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)),
            "pcie_tx_kbs": self._ask(lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)),
        }

    def _nvlink(self, handle: Any, field: str) -> int | None:
        """Return KiB since the driver was loaded, summed over all links, or None if the GPU does not report them."""
        nvml = self._nvml
        values = self._ask(lambda: nvml.nvmlDeviceGetFieldValues(handle, [(getattr(nvml, field), 0xFFFFFFFF)]))
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return None
        return int(values[0].value.ullVal)

    def _ask(self, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except self._nvml.NVMLError:  # this GPU does not report it
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
