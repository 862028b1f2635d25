"""Counters of network devices: RDMA ports in /sys/class/infiniband, network interfaces in /sys/class/net.

Counters are totals since the device was set up or reset, so rates are differences. A counter that a device does not
report is None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, Any]

SYS = Path("/sys")
_WORD = 4  # bytes: the unit of an InfiniBand port's data counters
# Value at which a port's counter saturates: 32 bits, except for these counters, which Linux reads from 16-bit fields.
_STUCK = (1 << 32) - 1
_STUCK_AT: dict[str, int] = dict.fromkeys(("port_rcv_errors", "port_xmit_discards"), (1 << 16) - 1)
# Column → (the counter's file in the port's folder, its unit).
_PORT = {
    "rx_bytes": ("counters/port_rcv_data", _WORD),
    "tx_bytes": ("counters/port_xmit_data", _WORD),
    "rx_packets": ("counters/port_rcv_packets", 1),
    "tx_packets": ("counters/port_xmit_packets", 1),
    "rx_errors": ("counters/port_rcv_errors", 1),
    "tx_dropped": ("counters/port_xmit_discards", 1),
    "tx_wait": ("counters/port_xmit_wait", 1),
    "cnp_sent": ("hw_counters/np_cnp_sent", 1),
    "cnp_handled": ("hw_counters/rp_cnp_handled", 1),
    "ecn_marked": ("hw_counters/np_ecn_marked_roce_packets", 1),
    "out_of_sequence": ("hw_counters/out_of_sequence", 1),
}
_INTERFACE = {
    f"{way}_{what}": (f"statistics/{way}_{what}", 1)
    for what in ("bytes", "packets", "errors", "dropped")
    for way in ("rx", "tx")
}


class Networks:
    """Ports and interfaces of the host. `source`: number of devices by kind, or why there are none.

    `root`: the folder to use as /sys. Devices that are added later are missing. Counters of removed devices become
    None.
    """

    def __init__(self, root: Path = SYS) -> None:
        ports = sorted(root.glob("class/infiniband/*/ports/*"))
        interfaces = sorted(root.glob("class/net/*/statistics"))
        self._devices = [
            *(("infiniband", path.parts[-3], path.name, path, _PORT) for path in ports),
            *(("net", path.parts[-2], None, path.parent, _INTERFACE) for path in interfaces),
        ]
        descriptions = [
            f"{len(paths)} {label}" for paths, label in ((ports, "RDMA ports"), (interfaces, "interfaces")) if paths
        ]
        self.source = ", ".join(descriptions) or f"none: {root} has neither class/infiniband nor class/net"

    def sample(self) -> list[Row]:
        """Return one row per port or interface."""
        return [
            {
                "kind": kind,
                "device": device,
                "port": port,
                **{column: _read(folder / name, unit) for column, (name, unit) in counters.items()},
            }
            for kind, device, port, folder, counters in self._devices
        ]


def _read(path: Path, unit: int) -> int | None:
    try:
        with open(path, "rb", buffering=0) as file:
            number = int(file.read())
    except (OSError, ValueError):  # the counter does not exist, is not readable, or is N/A
        return None
    is_stuck = path.parent.name == "counters" and number == _STUCK_AT.get(path.name, _STUCK)
    return None if is_stuck else number * unit
