"""Masking of values that look like secrets while a file is read: a value that is not in the lake is never shown.

Profilers write environment variables, command lines and metadata of a job into its trace. Programs write them into the
names of their spans, and dumps and snapshots into stacks. A value counts as a secret by its name (TOKEN, SECRET, KEY,
PASSWORD, CREDENTIAL), as the user and password of a URL, or by the format of a provider's tokens. Numbers alone are not
secrets (`num_tokens`: 128; a password may be a number), and neither are tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pipelines.models.sqltext import quoted

MASK = "***"  # no rule finds a secret in it, so that masking twice changes nothing
# Followed by neither a letter nor quotation: TOKEN, TOKENS, TOKEN_ID, not TOKENIZER.
_NAME = r"(?:token|secret|key|password|passwd|credential)s?"
_MORE = r"(?:[^A-Za-z\"'\\=:\s][^\"'\\=:\s]*)?"
_BEFORE = r"[^\"'\\=:\s]*"
_QUOTE = r"\\*[\"']"
_VALUE = r"(?:[^\"'\\]|\\[^\"'\\])*[A-Za-z](?:[^\"'\\]|\\[^\"'\\])*"
_WORD = r"[^\s\"'\\,;&)}\]]*[A-Za-z][^\s\"'\\,;&)}\]]*"
# HF_TOKEN=…, --api-key=…
_ASSIGNED = (rf"(?i)({_NAME}{_MORE}=(?:{_QUOTE})?){_WORD}", rf"\1{MASK}")
# In a name, only environment variables count: `prefill num_tokens=8k` describes the work.
_EXPORTED = (rf"([A-Z0-9]_(?:TOKEN|SECRET|KEY|PASSWORD|PASSWD|CREDENTIAL)S?=(?:{_QUOTE})?){_WORD}", rf"\1{MASK}")
# Pattern → replacement (RE2; \1 is the first group).
_RULES = (
    # {"HF_TOKEN": "…"}, also in a text that is JSON itself
    (rf"(?i)({_QUOTE}{_BEFORE}{_NAME}{_MORE}{_QUOTE}\s*:\s*{_QUOTE}){_VALUE}", rf"\1{MASK}"),
    (rf"(?i)({_QUOTE}{_BEFORE}(?:password|passwd|secret){_MORE}{_QUOTE}\s*:\s*{_QUOTE})[^\"'\\]+", rf"\1{MASK}"),
    # {"name": "HF_TOKEN", "value": "…"}
    (rf"(?i)(\"name\"\s*:\s*\"{_BEFORE}{_NAME}{_MORE}\"\s*,\s*\"value\"\s*:\s*\"){_VALUE}", rf"\1{MASK}"),
    # --api-key …, ["--api-key", "…"]
    (rf"(?i)(--?[a-z0-9_-]*{_NAME}(?:{_QUOTE}\s*,\s*{_QUOTE}|\s+)){_WORD}", rf"\1{MASK}"),
    (r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@\"'\\]*:[^/\s@\"'\\]+@", rf"\1{MASK}@"),  # https://user:password@host
    (r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{MASK}"),
    # Hugging Face, OpenAI and Anthropic, GitHub, GitLab, AWS, Slack, JSON web tokens, Google
    (
        r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
        r"glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|"
        r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*|AIza[A-Za-z0-9_-]{30,})",
        MASK,
    ),
    (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:[^\"\\]|\\+[^\"\\])*", rf"\1{MASK}"),
)
# Nearly all texts contain none of these; this check costs a tenth of the rules.
_HINT = (
    r"(?i)token|secret|key|passw|credential|://[^/\"]*@|bearer\s|hf_|sk-|gh[pousr]_|github_pat_|glpat-|akia|asia|xox[abprs]-|"
    r"eyj|aiza"
)
_HINT_BYTES = re.compile(_HINT.encode())


def may_hold_secrets(text: bytes) -> bool:
    """Return whether a text, JSON or not, may contain secrets. If False, the rules need not run."""
    # RE2 matches K (Kelvin) as k, and a backslash may escape any letter.
    return b"\\" in text or not text.isascii() or _HINT_BYTES.search(text) is not None


def masked_text(text: str, *, is_name: bool = False) -> str:
    """Return a text with the same masks as `masked`, for texts that are not in a table."""
    if not may_hold_secrets(text.encode("utf-8", "surrogatepass")):
        return text
    import pyarrow as pa
    from pyarrow import compute

    masked_array = pa.array([text], pa.string())
    # RE2, as in DuckDB: the time is linear in the text's length, whatever its content.
    for pattern, replacement in (_EXPORTED if is_name else _ASSIGNED, *_RULES):
        masked_array = compute.call_function(
            "replace_substring_regex", [masked_array], compute.ReplaceSubstringOptions(pattern, replacement)
        )
    return masked_array[0].as_py()


def masked(column: str, *, is_name: bool = False) -> str:
    """Return SQL for the text in a column, with values that look like secrets replaced by `MASK`.

    `is_name`: the name of an event, a function or a file, in which `tokens=…` is not a secret.
    """
    text = column
    for pattern, replacement in (_EXPORTED if is_name else _ASSIGNED, *_RULES):
        text = f"regexp_replace({text}, {quoted(pattern)}, {quoted(replacement)}, 'g')"
    return f"CASE WHEN {may_be_secret(column)} THEN {text} ELSE {column} END"


def may_be_secret(column: str) -> str:
    """Return a SQL condition: the text in a column may contain a value that `masked` replaces."""
    return f"regexp_matches({column}, {quoted(_HINT)})"


def told_by_dumps(described: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the text columns with names from a dump, a snapshot or another set: all except the file's own path.

    `described`: the rows of DESCRIBE.
    """
    return [name for name, kind, *_ in described if kind == "VARCHAR" and name != "path"]


def with_masks(query: str, texts: Sequence[str] = ("args", "extra"), names: Sequence[str] = ("name",)) -> str:
    """Return the query, by default of events, with values that look like secrets masked in text and name columns."""
    masked_columns = [(name, masked(name)) for name in texts] + [(name, masked(name, is_name=True)) for name in names]
    replaced = f" REPLACE ({', '.join(f'{text} AS {name}' for name, text in masked_columns)})" if masked_columns else ""
    return f"SELECT *{replaced} FROM (\n{query}\n)"
