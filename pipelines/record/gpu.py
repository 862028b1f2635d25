"""GPU counters from NVML, or an empty row if there is no NVML, driver or GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import Event, Thread
from typing import Any

Row = dict[str, Any]
_PCIE_INTERVAL_S = 1.0


class Gpus:
    """GPUs visible to NVML. `source` is the source of the counters, or why there is none. Call `close` when done."""

    def __init__(self) -> None:
        self._handles: list[tuple[int, Any, str | None, str | None]] = []
        self._nvml: Any = None
        self._pcie: _PcieReader | None = None
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
        for index in range(self._ask(pynvml.nvmlDeviceGetCount) or 0):
            handle = self._ask(partial(pynvml.nvmlDeviceGetHandleByIndex, index))
            if handle is None:  # a GPU that is lost, or that this process may not use
                continue
            uuid = self._ask(lambda h=handle: _text(pynvml.nvmlDeviceGetUUID(h)))
            name = self._ask(lambda h=handle: _text(pynvml.nvmlDeviceGetName(h)))
            self._handles.append((index, handle, uuid, name))
        self._pcie = _PcieReader({index: partial(self._pcie_rates, handle) for index, handle, *_ in self._handles})

    def sample(self) -> list[Row]:
        """Return one row per GPU, or one empty row without GPUs. A counter that a GPU does not report is None."""
        rows = [
            {"gpu_index": index, "gpu_uuid": uuid, "gpu_name": name, **self._counters(handle), **self._pcie_row(index)}
            for index, handle, uuid, name in self._handles
        ]
        return rows or [{}]

    def close(self) -> None:
        """Release NVML. Calling it again has no effect."""
        if self._pcie is not None:
            self._pcie.stop()
        if self._nvml is not None:
            self._ask(self._nvml.nvmlShutdown)
        self._nvml = self._pcie = None
        self._handles.clear()

    def _pcie_row(self, index: int) -> Row:
        received, sent = self._pcie.take(index) if self._pcie else (None, None)
        return {"pcie_rx_kbs": received, "pcie_tx_kbs": sent}

    def _pcie_rates(self, handle: Any) -> tuple[int | None, int | None]:
        """Return the rates into and out of the GPU, KB/s. Takes 40 ms, because NVML counts for 20 ms each time."""
        nvml = self._nvml
        kinds = nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES
        received, sent = (self._ask(lambda k=kind: nvml.nvmlDeviceGetPcieThroughput(handle, k)) for kind in kinds)
        return received, sent

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
        except self._nvml.NVMLError:  # the GPU does not report this value
            return None


class _PcieReader:
    """Thread that reads PCIe rates once a second. A reading takes 40 ms per GPU, too long for a sample to wait."""

    def __init__(self, read_by_gpu: dict[int, Callable[[], tuple[int | None, int | None]]]) -> None:
        self._read_by_gpu = read_by_gpu
        self._rates: dict[int, tuple[int | None, int | None]] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, name="pcie-reader", daemon=True)
        self._thread.start()

    def take(self, index: int) -> tuple[int | None, int | None]:
        """Return a GPU's rates (in, out) if they have been read since the last call, else (None, None)."""
        return self._rates.pop(index, (None, None))

    def stop(self) -> None:
        """End the thread, after at most one reading."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for index, read in self._read_by_gpu.items():
                if self._stop.is_set():
                    return
                self._rates[index] = read()
            self._stop.wait(_PCIE_INTERVAL_S)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
