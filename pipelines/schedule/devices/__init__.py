"""Devices that a pipeline runs on, behind one small interface (base.py)."""

from __future__ import annotations

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.devices.resolve import resolve_device

__all__ = ["Device", "Work", "resolve_device"]
