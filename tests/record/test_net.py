"""Counters of network devices: a fake /sys with all that a device may have, and rates in the lake."""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.record.net import SYS, Networks
from pipelines.record.sampler import CounterSampler

S = 10**9


def tree(root: Path, device: str = "mlx5_0", port: int = 1, **counters: object) -> Path:
    """Write an RDMA port with these counters (hw_… are hw_counters), and return its folder."""
    folder = root / "class" / "infiniband" / device / "ports" / str(port)
    for name, value in counters.items():
        of = "hw_counters" if name.startswith("hw_") else "counters"
        (folder / of).mkdir(parents=True, exist_ok=True)
        (folder / of / name.removeprefix("hw_")).write_text(f"{value}\n")
    return folder


def interface(root: Path, name: str, **counters: int) -> None:
    (folder := root / "class" / "net" / name / "statistics").mkdir(parents=True)
    for counter, value in counters.items():
        (folder / counter).write_text(f"{value}\n")


def test_a_port_s_data_counts_in_words_and_what_is_not_there_is_not_0(tmp_path: Path) -> None:
    tree(tmp_path, port_rcv_data=100, port_xmit_data=7, port_rcv_packets=3, hw_np_cnp_sent=9)
    tree(tmp_path, "mlx5_0", 2, port_xmit_data=0)
    interface(tmp_path, "eth0", rx_bytes=11, tx_bytes=12, tx_dropped=0)
    (tmp_path / "class" / "net" / "bonding_masters").write_text("bond0\n")  # a file in the folder of the interfaces
    networks = Networks(tmp_path)
    assert networks.source == "2 RDMA ports, 1 interfaces"
    first, second, eth = networks.sample()
    assert (first["kind"], first["device"], first["port"]) == ("infiniband", "mlx5_0", "1")
    assert (first["rx_bytes"], first["tx_bytes"], first["rx_packets"], first["cnp_sent"]) == (400, 28, 3, 9)
    assert (first["tx_packets"], first["tx_wait"]) == (None, None)
    assert (second["port"], second["tx_bytes"], second["rx_bytes"]) == ("2", 0, None)
    assert (eth["kind"], eth["device"], eth["port"], eth["rx_bytes"], eth["tx_dropped"]) == ("net", "eth0", None, 11, 0)
    assert eth["rx_dropped"] is None and "cnp_sent" not in eth


@pytest.mark.parametrize("value", ["N/A (no PMA)", "", "4294967295"])  # the last: stuck at the 32-bit maximum
def test_what_a_port_cannot_say_is_none(tmp_path: Path, value: str) -> None:
    tree(tmp_path, port_rcv_data=value, port_xmit_data=4294967296)
    (row,) = Networks(tmp_path).sample()
    assert (row["rx_bytes"], row["tx_bytes"]) == (None, 4 * 4294967296)


def test_errors_and_drops_are_stuck_at_the_end_of_their_16_bits(tmp_path: Path) -> None:
    tree(tmp_path, port_rcv_errors=65535, port_xmit_discards=65535, port_rcv_packets=65535)
    tree(tmp_path, "mlx5_1", port_rcv_errors=65534, port_xmit_discards=0)
    first, second = Networks(tmp_path).sample()
    assert (first["rx_errors"], first["tx_dropped"], first["rx_packets"]) == (None, None, 65535)
    assert (second["rx_errors"], second["tx_dropped"]) == (65534, 0)


def test_a_device_that_goes_away_tells_nothing_any_more(tmp_path: Path) -> None:
    folder = tree(tmp_path, port_rcv_data=1)
    networks = Networks(tmp_path)
    (folder / "counters" / "port_rcv_data").unlink()
    assert networks.sample()[0]["rx_bytes"] is None


def test_no_devices_are_no_rows_and_a_reason(tmp_path: Path) -> None:
    networks = Networks(tmp_path)
    assert networks.sample() == [] and networks.source.startswith(f"none: {tmp_path} has neither")


@pytest.mark.skipif(not SYS.joinpath("class", "net", "lo").exists(), reason="needs /sys/class/net/lo")
def test_this_host_s_loopback_counts_what_is_sent() -> None:
    import socket

    def sent() -> int:
        return next(row["tx_bytes"] for row in Networks().sample() if row["device"] == "lo")

    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inbox,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
    ):
        inbox.bind(("127.0.0.1", 0))
        before = sent()
        for _ in range(20):
            out.sendto(b"x" * 1000, inbox.getsockname())
        assert sent() - before >= 20_000


@pytest.mark.slow  # 3 s
def test_the_sampler_takes_them_once_a_second(tmp_path: Path) -> None:
    folder, lake = tree(tmp_path / "sys", port_rcv_data=10), Lake(tmp_path / "lake")
    with CounterSampler(os.getpid(), tmp_path / "in", hz=100, sys=tmp_path / "sys") as sampler:
        time.sleep(0.2)
        (folder / "counters" / "port_rcv_data").write_text("35\n")
        time.sleep(1.0)
        cost = sampler.stop()
    assert cost.n_samples > 50 and "1 RDMA ports" in str(cost)
    ingest([tmp_path / "in"], lake)
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        assert con.execute("SELECT rx_bytes FROM net_samples ORDER BY t_mono_ns").fetchall() == [(40,), (140,)]
        ((rate, between),) = con.execute("SELECT rx_bytes_per_s, between_ns FROM net_rates").fetchall()
        assert rate == pytest.approx(100 * S / between) and S <= between + 10**6 < 2 * S
        assert con.execute("SELECT net_source FROM recordings").fetchall() == [("1 RDMA ports",)]


@pytest.mark.slow  # 2 s; test_lake.py checks rates
def test_a_counter_that_went_back_says_so_and_has_no_rates(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "in", "counters", "run1", 42, 3)
    for at, got, sent in ((0, 100, 5), (1, 300, 5), (2, 50, 15), (4, 150, None), (5, 250, 25)):
        row = {"t_unix_ns": at * S, "t_mono_ns": at * S, "kind": "infiniband", "device": "mlx5_0", "port": "1"}
        other = {**row, "device": "mlx5_1"}
        recording.add("net_samples", [{**row, "rx_bytes": got, "tx_bytes": sent}, {**other, "rx_bytes": at}])
    recording.close()
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "in"], lake)
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        query = "SELECT t_unix_ns / 1e9, went_back, rx_bytes_per_s, tx_bytes_per_s, cnp_sent_per_s FROM net_rates WHERE device = '{}' ORDER BY 1"
        assert con.execute(query.format("mlx5_0")).fetchall() == [
            (1, False, 200, 0, None),
            (2, True, None, None, None),
            (4, False, 50, None, None),
            (5, False, 100, None, None),
        ]
        assert {row[2] for row in con.execute(query.format("mlx5_1")).fetchall()} == {1}
