"""Lakes on a mounted bucket or a network file system are refused, because writers exclude each other with flock."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.base.paths import UnusablePath
from pipelines.lake import Lake
from pipelines.lake.commit import local_disk
from pipelines.lake.commit.local_disk import TRUSTED, refuse_network
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from tests.lake.world import write_trace

MOUNTS = """22 1 8:1 / / rw - ext4 /dev/vda rw
30 22 0:40 / /mnt/bucket rw - fuse.mount-s3 mountpoint-s3 rw
31 22 0:41 / /mnt/with\\040blank rw - nfs4 host:/export rw
32 31 8:2 / /mnt/with\\040blank/disk rw - xfs /dev/vdb rw
33 22 0:42 / /mnt/twice rw - cifs //host/share rw
34 22 8:3 / /mnt/twice rw - ext4 /dev/vdc rw
35 22 0:43 / /mnt/layers rw - fuse.fuse-overlayfs fuse-overlayfs rw
36 22 0:44 / /mnt/pass rw - fuseblk /dev/vdd rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/mnt/bucket/lake", "fuse.mount-s3"),
        ("/mnt/bucket", "fuse.mount-s3"),
        ("/mnt/with blank/lake", "nfs4"),
        ("/mnt/bucketful/lake", None),
        ("/mnt/with blank/disk/lake", None),
        ("/mnt/twice/lake", None),
        ("/mnt/layers/lake", None),
        ("/mnt/pass/lake", None),
        ("/home/lake", None),
    ],
)
def test_network_file_systems_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, kind: str | None
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr("pipelines.lake.commit.local_disk._MOUNTS", mounts)
    if kind is None:
        refuse_network(Path(folder))
        return
    with pytest.raises(UnusablePath, match=f"is on {kind}: .*{TRUSTED}=1"):
        refuse_network(Path(folder))
    monkeypatch.setenv(TRUSTED, "1")
    refuse_network(Path(folder))


def test_where_mounts_are_unknown_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.lake.commit.local_disk._MOUNTS", tmp_path / "missing")
    refuse_network(Path("/mnt/bucket/lake"))


def test_a_writer_is_refused_and_a_reader_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, trace = Lake(tmp_path / "lake"), write_trace(tmp_path / "rank0.json", seed=1)
    ingest([str(trace)], lake)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}40 22 0:50 / {tmp_path} rw - fuse.s3fs s3fs rw\n")
    monkeypatch.setattr(local_disk, "_MOUNTS", mounts)
    with pytest.raises(UnusablePath, match=r"is on fuse\.s3fs"):
        ingest([str(trace)], lake)
    assert len(lake.known_traces()) == 1
    with lake.connect(["traces", "events"]) as con:
        assert con.execute("SELECT count(*) > 0 FROM events").fetchall() == [(True,)]
    table_files(lake.root, "events")[0].unlink()
    assert [broken.table for broken in lake.broken()] == ["events"]
