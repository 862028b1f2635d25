"""Detection of secrets by context: in a name, in arguments, between quotation marks, next to a word."""

from __future__ import annotations

import json

import duckdb
import pytest

from pipelines.models.sqltext import quoted
from pipelines.readers.secrets import MASK, masked, masked_text

SECRET = "S3cr3tVal"
# Texts with the secret, which the mask must replace.
NAMES = (
    *(f"{option}={SECRET}" for option in ("train.py --hf_token", "python train.py --password", "--api-key")),
    *(f"GET https://h/x?{name}={SECRET}" for name in ("api_key", "access_token", "token")),
    f"PGPASSWORD={SECRET} psql",
    *(f"{name}={SECRET}" for name in ("PASSWORD", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY_2")),
    f"client(api_key='{SECRET}')",
    f"https://h/x?max_tokens=8k&token={SECRET}",
    *(f"{name}={SECRET}" for name in ("db_pass", "MyDB basic_auth", "smb_pwd", "PGPASS")),
    f"AccountName=a;AccountKey={SECRET};EndpointSuffix=core.windows.net",
)
ARGS = (
    json.dumps({"env": json.dumps([{"name": "HF_TOKEN", "value": SECRET}])}),
    json.dumps({"env": json.dumps([{"value": SECRET, "name": "HF_TOKEN"}])}),
    f"[{{'name': 'HF_TOKEN', 'value': '{SECRET}'}}]",
    json.dumps({"name": "WANDB_API_KEY", "type": "env", "value": SECRET}),
    json.dumps({"value": SECRET, "n": 3, "name": "WANDB_API_KEY"}),
    f"X-Api-Key: {SECRET}",
    f'{{"Authorization":"{SECRET}"}}',
    *(f'{{"{name}": "{SECRET}"}}' for name in ("cloudant_api_key", "ibm_cloud_iam_token", "softlayer_password")),
    *(f'{{"{name}": "{SECRET}"}}' for name in ("cos_hmac_secret_access_key", "db_pass", "HTTP_auth", "PGPASS")),
    *(f"{name}: {SECRET}" for name in ("SMTP_PASS", "SMTP_AUTH", "DB_PWD", "PASSPHRASE", "PASSWORD")),
    f"AWS_SECRET_ACCESS_KEY = {SECRET}",
    f"curl -s -uuser:{SECRET} https://h",
    f'["curl", "-uuser:{SECRET}"]',
)
# Texts with a placeholder, and the secret that the mask must replace.
VALUES = {
    'SSH_PASSPHRASE="{}" x': "correct horse battery staple",
    '{{"cmd": "SSH_PASSPHRASE=\\"{}\\" x"}}': "correct horse battery staple",
    '--passphrase "{}" x': "correct horse battery",
    '["--passphrase", "{}"]': "correct horse",
    'PASSWORD="{}" x': "ab,cd;ef",
    "PASSWORD={} x": "abc&def",
    "PASSWORD={}": "1,S3cr3tVal",
    "DB_PASSWORD={}": "12345678",
    "--password={}": "12345678",
    "--password {} x": "12345678",
    "--password '{}' x": "12345678",
    '["--password", "{}"]': "12345678",
    "DB_PASSWORD: {} x": "12345678",
    "DB_PASSWORD = '{}'": "12345678",
    "DB_PWD: {}, x: 1": "1234-5678",
    "git clone https://{}@host/x@y": "bob:p@ss",
    '["https://{}@h1", "b@c"]': "bob:p@ss:@w",
    "https://{}@host https://git@host": "bob@example.com:12345678",
    "login(password={}, user=x)": "abc",
    "login(token='{}', user=x)": "it is",
    '{{"name":"PASSWORD","value":"{}"}}': "123456",
    'curl -H "Cookie: {}"': "session=S3cr3tVal; id=7",
    '{{"url": "{}"}}': r"https:\/\/hooks.slack.com\/services\/T01234567\/B01234567\/abcdef",
}
NAMES_THAT_STAY = (
    *("tokens=8k", "prefill num_tokens=8k", "run --tokens 8k", "decode --max-new-tokens 8k", "--max-tokens=8k"),
    *("per-token quant_fp8", "per-token group_gemm", "multi-token prediction", "next-token sampling", "qk-key norm"),
    *("sort-by-key pairs", "prefill-tokens decode", "void gemm<key=Half, token=bf16>(int)"),
    *("hf_BartForConditionalGeneration", "AKCustomAllReduce", "sk-128x128x64-warpspec"),
    *("forward_pass=1a", "db_passes=2x", "basic_authors=a", "epilogue_pass: fused", "PGPASSFILE=/home/me/.pgpass"),
    # Texts similar to tokens of a bot, of Discord and of Twilio.
    *("Cijk_Ailk_Bljk_BBS_BH_SK3_MT256x256x64_MI16x16x1", f"{'0123456789abcdef' * 2}", f"SK{'0123456789ABCDEF' * 2}"),
    *(f"SK{'0123456789abcdef' * 2}0", "1700000000:ncclDevKernel_AllReduce_Sum_f32_RING_", "12345678:AA_short"),
    "MultiheadLatentAttention.q_proj.forward_with_cache_and_mask",
)
ARGS_THAT_STAY = (
    {"key_shape": "bf16[8,128]", "fx_graph_cache_key": "fabc12", "dispatch_key": "CUDA", "key_padding_mask": "bool[8]"},
    {
        "token_dtype": "bf16",
        "num_tokens": "8k",
        "BACKWARD_PASS": "aten::mm",
        "key": "f32[8]",
        "token": "torch.bfloat16",
    },
    {
        "op": "prefill num_tokens=8k",
        "source": "sorted(rows, key=lambda r: r.x)",
        "hlo": "key=f32[8]{0}",
        "Key": "8x128",
    },
    {"args": ["--max-tokens", "8k"], "name": "num_tokens", "value": "8k"},
    {"token": 5, "key": 7, "secrets": 3, "password_length": 12, "password": None, "x": "--secrets 5 --max-key 3"},
    {"url": "https://host:80/a@b", "mail": "https://host/x:y@z", "git": "ssh://git@host:22"},
    {"forward_pass": "a", "fusion_pass": "b", "is_auth": "c", "author": "d", "pg_name": "default_pg", "compass": "n"},
    # A quotation mark that closes a text does not open a value.
    {"a": "x --password ", "b": 5},
    {"a": "PASSWORD=", "b": "c"},
    {"a": "x --token ", "b": "cc"},
    {"a": "token='", "b": "it's"},
)
CHANGED = [
    *((text, text.replace(SECRET, MASK), True) for text in NAMES),
    *((text, text.replace(SECRET, MASK), False) for text in (*NAMES, *ARGS)),
    *((text.format(value), text.format(MASK), False) for text, value in VALUES.items()),
    # Masked JSON remains valid JSON.
    *(
        (json.dumps({"a": value, "n": 1}), json.dumps({"a": mask, "n": 1}), is_name)
        for value, mask in (
            ({"password": 12345678}, {"password": MASK}),
            ([{"db_passwd": -1.5e9}], [{"db_passwd": MASK}]),
            (json.dumps({"password": 12345678}), json.dumps({"password": MASK})),
            (["--password", 12345678], ["--password", MASK]),
        )
        for is_name in (False, True)
    ),
    (f'{{\\"key\\": \\"HF_TOKEN\\", \\"value\\": \\"{SECRET}\\"}}', r"{\"key\": \"***\", \"value\": \"***\"}", False),
]
SAME = [
    *((text, text, True) for text in NAMES_THAT_STAY),
    *((text, text, False) for text in map(json.dumps, ARGS_THAT_STAY)),
]


@pytest.mark.parametrize(("text", "expected", "is_name"), [*CHANGED, *SAME])
def test_what_is_masked(text: str, expected: str, is_name: bool) -> None:
    assert masked_text(text, is_name=is_name) == expected
    assert masked_text(expected, is_name=is_name) == expected


@pytest.mark.parametrize("is_name", [False, True])
def test_columns_have_the_masks_of_texts(is_name: bool) -> None:
    texts = [text for text, *_ in (*CHANGED, *SAME)]
    listed = ", ".join(f"({quoted(text)})" for text in texts)
    rows = duckdb.sql(f"SELECT m, {masked('m', is_name=is_name)} FROM (VALUES {listed}) AS t (m)").fetchall()
    assert rows == [(text, masked_text(text, is_name=is_name)) for text in texts]
