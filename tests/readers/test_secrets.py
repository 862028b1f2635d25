"""Twelve secrets in the metadata, environment and arguments of a trace.

Neither the lake nor any output contains them.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.base.datafiles import rule_rows
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST, OVERLAYS, table_of
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import as_text, parquet_rows, quoted
from pipelines.readers import events_by_sql, secrets
from pipelines.readers.flight_recorder import dump, fields
from pipelines.readers.flight_recorder.dump import read_dump
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import Reading, single_trace
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import reader
from pipelines.readers.secrets import (
    _SHORT,
    MASK,
    file_may_hold_secrets,
    masked,
    masked_text,
    may_hold_secrets,
    text_columns,
)
from pipelines.runs.check import check
from pipelines.runs.digest import reduce_old
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.materialize.run_order import materialize_all
from tests.harness import call, kernel, memory, x
from tests.readers.flight_recorder.make import made, waits

SECRETS = (
    *(
        "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
        "wandb0123abcd4567",
        "wJalrXUtnFEMI/K7MDENG",
        "s3cret-of-the-db",
        "hunter2",
        "20260131",
    ),
    *("sk-abcdefghijklmnop1234", "tok-en9-of-the-hub", "pa55w0rd", "abcdef123456.bearer", "AKIAIOSFODNN7EXAMPLE"),
    "MIIEpAIBAAKCAQEA7",
)
METADATA: dict[str, Any] = {
    "env": {"HF_TOKEN": SECRETS[0], "WANDB_API_KEY": SECRETS[1], "PATH": "/usr/bin", "TOKENIZERS_PARALLELISM": "false"},
    "settings": {"environment": json.dumps({"AWS_SECRET_ACCESS_KEY": SECRETS[2], "LANG": "C"})},
    "container": [{"name": "DB_SECRET", "value": SECRETS[3]}, {"name": "REGION", "value": "eu-1"}],
    "admin_password": SECRETS[5],
    "pem": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRETS[11]}\n-----END RSA PRIVATE KEY-----",
}
ARGS: list[dict[str, Any]] = [
    {"cmd": f"train.py --api-key {SECRETS[6]} --password={SECRETS[4]} --seed 3"},
    {"argv": ["train.py", "--hub-token", SECRETS[7], "--lr", "0.1"]},
    {"repo": f"https://bob:{SECRETS[8]}@git.example.com/x.git", "header": f"Authorization: Bearer {SECRETS[9]}"},
    {"note": f"uses {SECRETS[10]} for the bucket"},
]
HARMLESS: list[dict[str, Any]] = [
    {"num_tokens": 128, "prompt_tokens": "128", "tokenizer": "Qwen/Qwen2-7B", "Input keys": ["f1", "f2"]},
    {"kernel_file": "/tmp/monkey/keys.py", "url": "https://host/a@b", "stack": "sorted(keys)", "Input Dims": [[1, 2]]},
]
# Names that describe an operation and contain no secret.
HARMLESS_NAMES = ("prefill num_tokens=8k", "void gemm<key=Half, token=bf16>(int)")


def written(folder: Path) -> Path:
    events = [
        call("cudaLaunchKernel", 10, 5, 1),
        kernel("gemm", 20, 30, 1),
        x("user_annotation", "ProfilerStep#7", 0, 90),
    ]
    names = [f"train.py --api-key {SECRETS[6]}", f"HF_TOKEN={SECRETS[0]}", f"clone s3://bob:{SECRETS[8]}@host/x"]
    events += [
        x("cpu_op", name, 10 + i, 1, **args)
        for i, (name, args) in enumerate(zip([*names, "op", *HARMLESS_NAMES], [*ARGS, *HARMLESS], strict=True))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trace.json"
    device = {"deviceProperties": [{"id": 0, "name": f"H100 {SECRETS[0]}"}]}
    path.write_text(json.dumps({**METADATA, **device, "traceEvents": events}))
    frames = [{"name": f"--token {SECRETS[7]}", "filename": "/x/train.py", "line": 3}]
    made(folder, 0, waits(1, frames=frames))
    settings = {"HF_TOKEN": SECRETS[0], "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    (folder / "rank0_snapshot.pickle").write_bytes(
        pickle.dumps({"segments": [], "device_traces": [[]], "allocator_settings": settings})
    )
    assert [secret for secret in SECRETS if secret not in path.read_text().replace("\\", "")] == []
    return path


def stored(root: Path) -> str:
    """Return every text of every Parquet file of a lake, and of its analysts' file."""
    rows = []
    with duckdb.connect() as con:
        for file in sorted(root.glob("*/day=*/*.parquet")):
            rows += con.execute(f"SELECT CAST(t AS VARCHAR) FROM read_parquet('{file}') AS t").fetchall()
        if (root / ANALYST).exists():
            con.execute(f"ATTACH '{root / ANALYST}' AS a (READ_ONLY)")
            tables = con.execute(
                "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'a'"
            ).fetchall()
            for schema, table in tables:
                rows += con.execute(f"SELECT CAST(t AS VARCHAR) FROM a.{schema}.{table} AS t").fetchall()
    return "\n".join(text for (text,) in rows).replace("\\", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files with the secrets in `in`, and a lake with them in `lake`."""
    folder = tmp_path_factory.mktemp("secrets")
    lake, path = Lake(folder / "lake"), written(folder / "in")
    assert [row.status for row in ingest([path.parent], lake).rows] == ["ok"] * 3
    materialize_all(lake, ["kernels", "captures"])
    return folder


def printed(commands: dict[str, list[str]]) -> dict[str, str]:
    texts = {}
    for name, words in commands.items():
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (name, done.output)
        texts[name] = done.output
    return texts


def shown_secrets(texts: dict[str, str]) -> set[tuple[str, str]]:
    return {(name, secret) for name, text in texts.items() for secret in SECRETS if secret in text}


def test_none_of_twelve_is_stored_or_shown(folder: Path, tmp_path: Path) -> None:
    lake = Lake(folder / "lake")
    commands = {
        "slice": ["slice", "--step", "7", "--out", str(tmp_path / "slice.json")],
        "sql": ["sql", "SELECT metadata FROM traces", "--format", "json"],
        "args": ["sql", "SELECT args, extra FROM events", "--format", "csv"],
    }
    commands = {name: [*words, "--lake", str(lake.root)] for name, words in commands.items()}
    commands["dump"] = ["flight-recorder", str(folder / "in"), "--json"]
    commands["snapshot"] = ["memory", str(folder / "in" / "rank0_snapshot.pickle"), "--json"]
    texts = {"lake": stored(lake.root), **printed(commands), "slice.json": (tmp_path / "slice.json").read_text()}
    assert shown_secrets(texts) == set()
    assert all(name in texts["lake"] for name in HARMLESS_NAMES) and "expandable_segments" in texts["lake"]
    assert texts["lake"].count(MASK) >= 12 and "git.example.com" in texts["lake"] and "TOKENIZERS" in texts["lake"]
    assert check(lake).faults == []


@pytest.mark.slow  # 6 s
def test_none_of_twelve_is_in_a_report_or_an_overlay(folder: Path, tmp_path: Path) -> None:
    trace, report, lake = (str(path) for path in (folder / "in" / "trace.json", tmp_path / "r.html", folder / "lake"))
    commands = {
        "overlay": ["overlay", trace, "--out", str(tmp_path), "--all-edges", "--lake", lake],
        "report": ["report", trace, "--out", report, "--lake", lake],
    }
    assert shown_secrets({**printed(commands), "report.html": Path(report).read_text()}) == set()


_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
EACH = {
    '{"GCP_CREDENTIALS": "abc"}': '{"GCP_CREDENTIALS": "***"}',
    '{"access_token_id": "a1"}': '{"access_token_id": "***"}',
    '{"tokenizers": "a1", "Keys": [1]}': '{"tokenizers": "a1", "Keys": [1]}',
    '{"passwd": "1234"}': '{"passwd": "***"}',
    '{"name": "X_KEY", "value": "v1"}': '{"name": "X_KEY", "value": "***"}',
    "A_SECRET=v1 B=2": "A_SECRET=*** B=2",
    "run --secret v1 -k 2": "run --secret *** -k 2",
    "run --secret 'v1' -k 2": "run --secret '***' -k 2",
    r'{"cmd": "run --api-key \"v1\" -k 2"}': r'{"cmd": "run --api-key \"***\" -k 2"}',
    r"""{"DB_PASSWORD": "v1\"v2\\v3", "A_TOKEN": "it's v4"}""": '{"DB_PASSWORD": "***", "A_TOKEN": "***"}',
    "ssh://git:pw@host/p ssh://git@host/p": "ssh://***@host/p ssh://git@host/p",
    r'{"url": "https:\/\/git:pw@host\/p"}': r'{"url": "https:\/\/***@host\/p"}',
    "bearer 0123456789ab": "bearer ***",
    "export AWS_SECRET_ACCESS_KEY: wJalrXUt and on": "export AWS_SECRET_ACCESS_KEY: *** and on",
    '{"env": [["HF_TOKEN", "v1"], ["LANG", "C"]]}': '{"env": [["HF_TOKEN", "***"], ["LANG", "C"]]}',
    '{"key": "HF_TOKEN", "value": "v1"}': '{"key": "***", "value": "***"}',
    '{"value": "v1", "name": "HF_TOKEN"}': '{"value": "***", "name": "HF_TOKEN"}',
    '{"API_KEYS": ["v1", "v2"], "n": 1}': '{"API_KEYS": ["***"], "n": 1}',
    '{"API_KEY": {"of": "v1", "n": 1}}': '{"API_KEY": {"***":"***"}}',
    r'{"text": "{\"API_KEY\": [\"v1\", 2]}"}': r'{"text": "{\"API_KEY\": [\"***\"]}"}',
    "Authorization: Basic dXNlcjpwYXNz": "Authorization: Basic ***",
    '{"Authorization": "Basic dXNlcjpwYXNz"}': '{"Authorization": "Basic ***"}',
    "curl -u bob:pa55 https://host": "curl -u bob:*** https://host",
    '["curl", "-u", "bob:pa55"]': '["curl", "-u", "bob:***"]',
    "curl --user=bob:pa55": "curl --user=bob:***",
    r'{"cmd": "[\"curl\", \"-u\", \"bob:pa55\"]"}': r'{"cmd": "[\"curl\", \"-u\", \"bob:***\"]"}',
    r'{"cmd": "[\"curl\", \"--user\", \"bob:pa55\"]"}': r'{"cmd": "[\"curl\", \"--user\", \"bob:***\"]"}',
    '{"DB_PASS": "v1", "PGPASS": "v1"}': '{"DB_PASS": "***", "PGPASS": "***"}',
    '{"db_pass": "v1", "basic_auth": "v1", "smb_pwd": "v1"}': '{"db_pass": "***", "basic_auth": "***", "smb_pwd": "***"}',
    "my_db_pass=v1 smb_pwd: v1 pg_pass = v1": "my_db_pass=*** smb_pwd: *** pg_pass = ***",
    '{"REGISTRY_AUTH": "v1", "MYSQL_PWD": "v1"}': '{"REGISTRY_AUTH": "***", "MYSQL_PWD": "***"}',
    '{"ssh_passphrase": "v1", "Cookie": "v1"}': '{"ssh_passphrase": "***", "Cookie": "***"}',
    '{"PWD": "/home/me", "forward_pass": "a", "author": "b"}': '{"PWD": "/home/me", "forward_pass": "a", "author": "b"}',
    '{"keys": ["a", "b"], "token": {"text": "the"}}': '{"keys": ["a", "b"], "token": {"text": "the"}}',
    '["token_ids", "attention_mask"]': '["token_ids", "attention_mask"]',
    "https://b.s3.amazonaws.com/x?X-Amz-Signature=ab12&part=3": "https://b.s3.amazonaws.com/x?X-Amz-Signature=***&part=3",
    "https://a.blob.core.windows.net/x?sv=2024&sig=aB%3D": "https://a.blob.core.windows.net/x?sv=2024&sig=***",
    **dict.fromkeys(
        (
            "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
            "sk-ant-api03-abcdefgh",
            "ghp_abcdefghijklmnopqrst",
            "github_pat_abcdefghijklmnopqrst",
            "glpat-abcdefghijklmnop",
            "ASIAIOSFODNN7EXAMPLE",
            "xoxb-1234567890-ab",
            "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxw",
            "AIzaSyA1234567890123456789012345678901",
            "https://hooks.slack.com/services/T01234567/B01234567/abcdefghijklmnopqrstuvwx",
            f"nvapi-{_LETTERS}",
            f"npm_{_LETTERS}",
            f"pypi-AgEIcHlwaS5vcmc{_LETTERS}",
            f"r8_{_LETTERS}",
            f"SG.{_LETTERS[:22]}.{_LETTERS}{_LETTERS[:7]}",
            f"sk_live_{_LETTERS[:24]}",
            f"sq0csp-{_LETTERS}{_LETTERS[:7]}",
            f"glrt-{_LETTERS[:20]}",
            f"GR1348941{_LETTERS[:20]}",
            f"AKCp8{_LETTERS[:12]}",
            "0123456789abcdef0123456789abcdef-us12",
            # From the tests of detect-secrets, or made for its detectors.
            "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
            "Nzk5MjgxNDk0NDc2NDU1OTg3.YABS5g.2lmzECVlZv3vv6miVnUaKPQi2wI",
            f"https://api.softlayer.com/soap/v3.1/{'0123456789abcdef' * 4}",
            "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "SK0123456789abcdef0123456789abcdef",
        ),
        "***",
    ),
}


def masked_in_sql(texts: Sequence[str], is_name: bool = False) -> list[str]:
    with duckdb.connect() as con:
        query = f"SELECT {masked('m', is_name=is_name)} FROM unnest(?) WITH ORDINALITY AS t (m, n) ORDER BY n"
        return [text for (text,) in con.execute(query, [texts]).fetchall()]


def test_each_kind_of_secret_and_each_provider() -> None:
    assert dict(zip(EACH, masked_in_sql([*EACH]), strict=True)) == EACH


def test_each_format_has_an_example() -> None:
    tokens = [text for text, shown in EACH.items() if shown == MASK]
    for row in rule_rows("secret_formats"):
        fitting = [text for text in tokens if re.search(row["pattern"], text)]
        assert fitting and all(re.search(row["hint"], text) for text in fitting), row


def test_what_holds_no_secret_for_sure_has_none() -> None:
    texts = [
        *EACH,
        *EACH.values(),
        *map(json.dumps, [*ARGS, *HARMLESS, METADATA]),
        *HARMLESS_NAMES,
        "\u212aey=abc",
        "to\\u006ben=abc",
    ]
    parts = [text[first : first + 40] for text in texts for first in range(0, len(text), 7)]
    with duckdb.connect() as con:
        listed = ", ".join(f"({quoted(text)})" for text in parts)
        rows = con.execute(f"SELECT m, {masked('m')}, {masked('m', is_name=True)} FROM (VALUES {listed}) AS t (m)")
        sure = [row for row in rows.fetchall() if not may_hold_secrets(row[0].encode())]
    assert len(sure) > len(parts) / 4
    assert [row for row in sure if row != (row[0],) * 3] == []
    assert may_hold_secrets("\u212aey=abc".encode()) and may_hold_secrets(b"to\\u006ben=abc")


@pytest.mark.parametrize("n_bytes", [0, _SHORT - 1, _SHORT, 3 * _SHORT])
def test_a_file_is_searched_to_its_end_by_either_engine(n_bytes: int, tmp_path: Path) -> None:
    file = tmp_path / "piece.json"
    with duckdb.connect() as con:
        for end, holds in (
            ("", False),
            ("tokenizers", True),
            ("db_pass", True),
            ("forward_pass", False),
            ("é", True),
            ("\\", True),
        ):
            file.write_text("x" * max(n_bytes - len(end.encode()), 0) + end, encoding="utf-8")
            assert file_may_hold_secrets(con, file) == holds, end


@pytest.mark.parametrize("name", ["HF_TOKEN=abcdef", "HF_\\u0054OKEN=abcdef"])
def test_a_file_of_one_event_is_looked_at(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace.json"
    event = json.dumps(x("cpu_op", "NAME", 1, 1)).replace("NAME", name)
    process = json.dumps({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "NAME"}}).replace("NAME", name)
    path.write_text(f'{{"traceEvents": [{event}, {process}]}}')
    for lean in (False, True):  # if the trace is read without a lake, few arguments are read
        con = memory()
        load_trace(con, path, lean=lean)
        rows = con.execute("SELECT name, args FROM events").fetchall()
        assert "abcdef" not in str(rows) and str(rows).count(MASK) == 2


def test_ids_are_looked_at(tmp_path: Path) -> None:
    keys = {"cat": "cat", "pid": "pid", "tid": "tid", "flow_id": "id"}
    path = tmp_path / "trace.json"
    secrets = [x("cpu_op", "b", 3 + i, 1) | {key: "A_TOKEN=abcdef"} for i, key in enumerate(keys.values())]
    path.write_text(json.dumps({"traceEvents": [x("cpu_op", "a", 1, 1), *secrets]}))
    con = memory()
    load_trace(con, path)
    plain, *rows = con.execute(f"SELECT {', '.join(keys)} FROM events ORDER BY event_id").fetchall()
    for place, row in enumerate(rows):
        assert row == tuple(f"A_TOKEN={MASK}" if i == place else text for i, text in enumerate(plain))
        assert row[place] != plain[place]


def test_what_is_no_secret_stays() -> None:
    harmless = [json.dumps(args) for args in HARMLESS]
    assert masked_in_sql(harmless) == harmless
    texts = masked_in_sql([json.dumps(args) for args in [*ARGS, METADATA]])
    for text, args in zip(texts, [*ARGS, METADATA], strict=True):
        assert json.loads(text).keys() == args.keys() and MASK in text
    assert masked_in_sql(texts) == texts


@pytest.mark.slow  # no current lake needs it; tests above check the detection
def test_a_lake_of_an_older_version_is_found_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, path = Lake(tmp_path / "lake"), written(tmp_path / "in")
    for module in (reader, events_by_sql):
        monkeypatch.setattr(module, "with_masks", lambda query, *_: query)
    monkeypatch.setattr(single_trace, "masked", lambda column: column)
    monkeypatch.setattr(Reading, "_mask", lambda *_: None)
    monkeypatch.setattr(dump, "text", as_text)
    ingest([path.parent], lake)
    materialize_all(lake, ["kernels"])
    monkeypatch.undo()
    assert SECRETS[0] in stored(lake.root)
    checked = check(lake)
    why = "1 row has a value that looks like a secret (a token, key or password)"
    assert {Path(fault.path).parts[-3]: fault.why.split(":")[0] for fault in checked.faults} == {
        "events": "4 rows have values that look like a secret (a token, key or password)",
        **dict.fromkeys(("traces", "flight_recorder_entries", "flight_recorder_verdicts", "memory_snapshots"), why),
    }
    assert {fault.repaired for fault in check(lake, repair=True).faults} == {"masked"}
    assert check(lake).faults == []
    assert [secret for secret in SECRETS if secret in stored(lake.root)] == []
    done = CliRunner().invoke(
        app, ["sql", "SELECT count(*) AS n FROM events", "--lake", str(lake.root), "--format", "json"]
    )
    assert json.loads(done.stdout) == [{"n": 9}]
    assert secrets.MASK in stored(lake.root)


def unmasked(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest a trace with a secret in the names of a kernel and an annotation, as an older version did."""
    name = f"HF_TOKEN={SECRETS[0]}"
    events = [x("user_annotation", name, 0, 400), call("cudaLaunchKernel", 10, 5, 1), kernel(name, 20, 300, 1)]
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    with monkeypatch.context() as patch:
        patch.setattr(reader, "with_masks", lambda query, *_: query)
        ingest([folder], lake)


def texts_of_tables(lake: Lake) -> dict[str, str]:
    with duckdb.connect() as con:
        return {
            table_of(file): str(con.execute(f"FROM {parquet_rows(file)}").fetchall())
            for file in sorted(lake.root.glob("*/day=*/*.parquet"))
        }


def test_tables_that_were_computed_from_a_secret_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.runs.check.publish", lambda *_: None)
    lake = Lake(tmp_path / "lake")
    unmasked(lake, tmp_path / "in", monkeypatch)
    materialize(lake, ["kernels"], and_publish=False)
    overlay = lake.root / OVERLAYS / f"day={lake.batches()[0].day}" / next(iter(lake.known_traces())) / "path.json"
    overlay.parent.mkdir(parents=True)
    overlay.touch()
    assert SECRETS[0] in texts_of_tables(lake)["kernels"]
    assert [fault.repaired for fault in check(lake, repair=True).faults] == ["masked"]
    assert SECRETS[0] not in str(texts_of_tables(lake)) and f"HF_TOKEN={MASK}" in texts_of_tables(lake)["kernels"]
    assert not overlay.exists()


@pytest.mark.slow  # 6 s; a test above covers a table of traces
@pytest.mark.parametrize("is_digest", [False, True])
def test_tables_of_captures_and_digests_keep_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_digest: bool
) -> None:
    lake = Lake(tmp_path / "lake")
    unmasked(lake, tmp_path / "in", monkeypatch)
    materialize_all(lake, ["cause_totals"])
    if is_digest:
        reduce_old(lake, 14, now=datetime.now(UTC) + timedelta(days=30), grace=timedelta(0))
    before = texts_of_tables(lake)
    assert {"causes", "cause_totals"} <= {table for table, text in before.items() if SECRETS[0] in text}
    assert {fault.repaired for fault in check(lake, repair=True).faults} == {"masked"}
    assert check(lake).faults == []
    after = texts_of_tables(lake)
    assert SECRETS[0] not in str(after) + stored(lake.root)
    assert after.keys() == before.keys()
    assert f"HF_TOKEN={MASK}" in after["cause_totals"] and f"HF_TOKEN={MASK}" in after["causes"]
    assert all(lake.is_digest(batch) == is_digest for batch in lake.batches())


def test_dumps_and_snapshots_that_are_read_without_a_lake_are_masked(tmp_path: Path) -> None:
    secret = SECRETS[0]
    frames = [{"name": f"--token {secret}", "filename": f"/x/HF_TOKEN={secret}/train.py", "line": 3}]
    groups = {"0": {"name": "0", "desc": f"of {secret}", "ranks": "[0, 1]"}}
    for rank, calls in enumerate([[waits(1, frames=frames)], []]):
        made(tmp_path, rank, *calls, groups=groups, pg_status={"0": {"note": secret}})
    block = {"address": 1, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "address": 1, "total_size": 1024, "stream": 0, "segment_type": "small", "blocks": [block]}
    snapshot = tmp_path / "rank0_snapshot.pickle"
    snapshot.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    dumps = [str(tmp_path / f"dump_{rank}") for rank in (0, 1)]
    for words in (["flight-recorder", *dumps], ["memory", str(snapshot)]):
        for as_json in ([], ["--json"]):
            said = CliRunner().invoke(app, [*words, *as_json], env={"COLUMNS": "300"})
            assert said.exit_code == 0, said.output
            assert secret not in said.output and f"HF_TOKEN={MASK}" in said.output
    assert secret not in str(read_dump(dumps[0]))


def test_a_text_is_masked_as_a_column_is() -> None:
    texts = [*EACH, *HARMLESS_NAMES, *map(json.dumps, [*ARGS, METADATA]), "\u212aey=abc"]
    assert [masked_text(text, is_name=True) for text in texts] == masked_in_sql(texts, is_name=True)


def test_a_text_of_a_dump_is_masked_whatever_its_length() -> None:
    for n in (1, 5000):  # the longer one is not kept in memory
        assert fields.text(f"{'x' * n} HF_TOKEN=abcdef") == f"{'x' * n} HF_TOKEN={MASK}"


def test_a_dump_s_own_path_stays_as_it_is() -> None:
    assert text_columns([("path", "VARCHAR"), ("name", "VARCHAR", "YES"), ("n", "BIGINT")]) == ["name"]


def test_what_findings_and_reasons_quote_is_looked_at(tmp_path: Path) -> None:
    """Secrets are masked in the position of a finding (a key) and in the reason of a rejection (a quoted line)."""
    events = json.dumps([x("cpu_op", "a", 1, 1)])
    (tmp_path / "a.json").write_text(f'{{"A_TOKEN=abcdef": 1, "A_TOKEN=abcdef": 2, "traceEvents": {events}}}')
    names = "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value"
    (tmp_path / "a_counter_collection.csv").write_text(f"{names}\nA_TOKEN=abcdef\n")
    lake = Lake(tmp_path / "lake")
    report = ingest([tmp_path / "a.json", tmp_path / "a_counter_collection.csv"], lake)
    assert [row.status for row in report.rows] == ["ok", "rejected"]
    assert "abcdef" not in str(report.rows) and f"A_TOKEN={MASK}" in str(report.rows)
    texts = stored(lake.root)
    assert "abcdef" not in texts and texts.count(f"A_TOKEN={MASK}") >= 3  # metadata, finding, rejection


def test_what_a_recorded_command_assigns_is_masked() -> None:
    """The value of `wandb.api_key=…` on a command line is masked. In a name, `tokens=8k` describes an operation."""
    with duckdb.connect() as con:
        reading = Reading(con, load_catalog(), "recording", {}, None)
        reading.add_rows("recordings", [{"recording_id": "r", "command": "train.py wandb.api_key=abcdef lr=0.1"}])
        ((command,),) = con.execute("SELECT command FROM one.recordings").fetchall()
    assert command == f"train.py wandb.api_key={MASK} lr=0.1"
