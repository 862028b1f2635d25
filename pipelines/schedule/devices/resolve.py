"""Resolution of the argument `device=` to a device."""

from __future__ import annotations

from typing import Any

from pipelines.schedule.devices.base import Device


def resolve_device(device: Any) -> Device:
    """Return the device for an integer N, "cuda:N", a torch.device, "cpu", "simulated", or a device object.

    "cuda" without a number is torch's current device, as elsewhere in torch.

    Raise ValueError if `device` is anything else, and RuntimeError if the CUDA device does not exist.
    """
    if isinstance(device, Device):
        return device
    kind = getattr(device, "type", None)
    text = str(device) if isinstance(device, str) or kind else f"cuda:{device}" if isinstance(device, int) else ""
    if text == "cpu":
        from pipelines.schedule.devices.cpu import CpuDevice

        return CpuDevice()
    if text == "simulated":
        from pipelines.schedule.simulation.simulated import SimulatedDevice

        return SimulatedDevice()
    if text == "cuda" or (text.startswith("cuda:") and text[5:].isdigit()):
        from pipelines.schedule.devices.cuda import CudaDevice

        return CudaDevice(int(text[5:]) if text[5:] else None)
    raise ValueError(f'device={device!r}: use an integer or "cuda:N", "cpu", "simulated", or a device object')
