"""Masking of values that look like secrets while a file is read, so that no secret gets into the lake.

Profilers write environment variables, command lines and metadata of a job into its trace. Programs write them into the
names of their spans, and dumps and snapshots into stacks. A value counts as a secret by its name (TOKEN, SECRET, KEY,
PASSWORD, COOKIE …), by its position (user and password of a URL, the headers Authorization, Cookie and X-…-Key, curl's
-u, a signature in a query string), or by the format of a provider's tokens (`sql/rules/readers/secret_formats.csv`).
Only a password may be a number, because numbers such as `num_tokens` = 128 are not secrets. Tokenizers, shapes, types
and keys of a program's work (`dispatch_key`, `key_padding_mask`) are not secrets either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.datafiles import rule_rows
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

COMMAND = "command"
"""Column with a command line, in which `api_key=…` is a secret, unlike in a name."""
_IDS = ("cat", "pid", "tid", "flow_id")
MASK = "***"  # no rule matches it, so that masking twice changes nothing
# Neither a letter nor a quote may follow: TOKEN, TOKENS, TOKEN_ID, not TOKENIZER. PASS and AUTH are too common in other
# words (forward_pass, author), and PWD alone is a folder, so these count in environment variables only, and in lower
# case only after the name of a service with accounts.
_WORDS = r"token|secret|key|password|passwd|passphrase|credential|cookie"
_ACCOUNTS = (
    r"(?:basic|http|proxy|registry|smtp)_auth|(?:db|ftp|imap|ldap|mysql|pg|postgres|redis|smb|smtp)_(?:pass|pwd)"
)
_VARIABLES = rf"(?:(?-i:(?:\b|_|PG)(?:AUTH|PASS)|_PWD)|(?:\b|_)(?:{_ACCOUNTS}))"
_NAME = rf"(?:(?:{_WORDS})s?|{_VARIABLES})"
_MORE = r"(?:[^A-Za-z\"'\\=:\s][^\"'\\=:\s]*)?"
_BEFORE = r"[^\"'\\=:\s]*"
_QUOTE = r"\\*[\"']"
_VALUE = r"(?:[^\"'\\]|\\[^\"'\\])*[A-Za-z](?:[^\"'\\]|\\[^\"'\\])*"
_JSON_VALUE = r"(?:[^\"\\]|\\.)*[A-Za-z](?:[^\"\\]|\\.)*"
_WORD = r"[^\s\"'\\,;&)}\]]*[A-Za-z][^\s\"'\\,;&)}\]]*"
# Names that always denote secrets, also in lists, objects, names and text, where `key` and `token` often do not.
_SURE = (
    r"(?:password|passwd|passphrase|credential|secret|cookie|(?:access|account|api|private|secret)[_-]?key|"
    r"(?:access|api|auth|bearer|hf|hub|refresh|session)[_-]?token)s?"
)
_SURE_NAME = rf"{_QUOTE}{_BEFORE}(?:{_SURE}|{_VARIABLES}|(?-i:_(?:TOKEN|KEY)S?)){_MORE}{_QUOTE}"
# Names of secrets whose value may be a number.
_PASSWORD = r"(?:password|passwd|passphrase|secret|(?-i:_PWD))"
_ANY_WORD = r"[^\s\"'\\]*[^\s\"'\\)}\],;]"
# Values that _WORD does not match. A rule with _NO_LETTERS after a rule with _WORD masks all remaining values.
_NO_LETTERS = r"[^\s\"'\\,;&)}\]A-Za-z]+"
_BARE_NUMBER = r"-?\d[\d.eE+-]*"
# Names of options. `tokens` is excluded, because --max-tokens is a number.
_OPTION = r"(?:token|(?:secret|key|password|passwd|passphrase|credential|cookie)s?)"
_LEAD = r"(?:^|[\s\"'(])--?[\w.-]*"


def _after(start: str, word: str, some: str = "") -> tuple[str, str]:
    """Return the rule that masks a value after `start`: a quoted text up to its closing quotation mark, or a word.

    `word`: pattern of an unquoted value. `some`: pattern that a quoted value must contain. A quotation mark before a
    comma, a colon or a bracket closes an earlier text, so it opens no value.
    """
    first, double, single = r"[^\s\"'\\,:}\]]", r"(?:[^\"\\]|\\+[^\"\\])*", r"(?:[^\"'\\]|\\+[^\"'\\])*"
    quoted_values = "|".join(
        rf"(\\*{mark})(?:{some}{rest}|{first}{rest}{some}{rest})" if some else rf"(\\*{mark}){first}{rest}"
        for mark, rest in (('"', double), ("'", single))
    )
    return rf"(?i)({start})(?:{quoted_values}|{word})", rf"\1\2\3{MASK}"


def _pairs(name: str, json_value: str, value: str) -> list[tuple[str, str]]:
    """Return the rules for {"name": "HF_TOKEN", "value": "…"}, in either order and with other members in between."""
    between = rf"(?:\s*,\s*{_QUOTE}[^\"'\\]*{_QUOTE}\s*:\s*(?:{_QUOTE}[^\"'\\]*{_QUOTE}|[^\"'\\,{{}}]*))*?\s*,\s*"
    named = rf"{_QUOTE}(?:name|key){_QUOTE}\s*:\s*{_QUOTE}{_BEFORE}{name}{_MORE}{_QUOTE}"
    valued = rf"{_QUOTE}value{_QUOTE}\s*:\s*"
    either = rf"(?:(\"){json_value}|({_QUOTE}){value})"
    return [
        (rf"(?i)({named}{between}{valued}){either}", rf"\1\2\3{MASK}"),
        (rf"(?i)({valued}){either}({_QUOTE}{between}{named})", rf"\1\2\3{MASK}\4"),
    ]


# Names in a program's work that contain key, token or pass. A noncharacter within them hides them from the other rules.
_HIDE = "\ufdd0"
_PREFIXES = r"bos|cache|cls|dispatch|eos|graph|group|guard|mask|max|min|num|pad|sep|sort|total|unk"
_SUFFIXES = r"count|dim|dtype|embedding|head|layout|len|length|mask|proj|shape|size|state|stride|type"
_TYPES = (
    r"bool|pred|half|double|(?:b?f|bf|bfloat|float|fp|tf|u?int|[csu]|complex)(?:4|8|16|19|32|64|128)(?:_?e\dm\d\w*)?"
)
_END = r"(?:[^\w.-]|$)"
_HIDDEN = (
    rf"(?i)((?:^|[^a-z])(?:{_PREFIXES})[_-]?[kt])(ey|oken)|"
    rf"([kt])((?:ey|oken)s?(?:[_-][a-z]+)*?[_-](?:{_SUFFIXES})s?(?:[^a-z]|$))|"
    rf"(\b[kt])((?:ey|oken)s?(?:=(?:{_QUOTE})?|{_QUOTE}\s*:\s*{_QUOTE})"
    rf"(?:lambda\b|(?:torch\.)?(?:{_TYPES}){_END}|\d+(?:x\d+)+{_END}))|"
    r"((?-i:(?:FORWARD|BACKWARD|FWD|BWD|DECODE|PREFILL)_P))((?-i:ASS))",
    rf"\1\3\5\7{_HIDE}\2\4\6\8",
)
_PASSWORD_ASSIGNED = _after(rf"{_PASSWORD}{_MORE}=", _ANY_WORD)
# HF_TOKEN=…, --api-key=…
_ASSIGNED = _after(rf"{_NAME}{_MORE}=", _WORD, "[A-Za-z]")
# In names, only options, URL parameters, environment variables and _SURE count, because `tokens=8k` describes work.
_ASSIGNED_IN_NAMES = _after(
    rf"(?:{_LEAD}{_OPTION}|[?&](?:[\w.-]*[_.-])?{_OPTION}){_MORE}=|{_SURE}{_MORE}=|"
    rf"(?-i:(?:[A-Z0-9]_(?:(?:{_WORDS.upper()})S?|AUTH|PASS|PWD)|\bPGPASS)(?:_?[0-9]+)?=)|"
    rf"(?:\b|_)(?:{_ACCOUNTS})=",
    _WORD,
    "[A-Za-z]",
)
# Pattern → replacement (RE2; \1 is the first group).
_RULES = (
    # Before the next rules, which would mask the name of a "key".
    *_pairs(_NAME, _JSON_VALUE, _VALUE),
    *_pairs(_PASSWORD, r"(?:[^\"\\]|\\.)+", r"[^\"'\\]+"),
    # {"HF_TOKEN": "…"}, where the value may contain quotes; then the same in JSON inside a text
    (rf"(?i)(\"{_BEFORE}{_NAME}{_MORE}\"\s*:\s*\"){_JSON_VALUE}", rf"\1{MASK}"),
    (rf"(?i)({_QUOTE}{_BEFORE}{_NAME}{_MORE}{_QUOTE}\s*:\s*{_QUOTE}){_VALUE}", rf"\1{MASK}"),
    (rf"(?i)({_QUOTE}{_BEFORE}{_PASSWORD}{_MORE}{_QUOTE}\s*:\s*{_QUOTE})[^\"'\\]+", rf"\1{MASK}"),
    (rf"(?i)({_QUOTE}{_BEFORE}{_PASSWORD})({_QUOTE})(\s*:\s*){_BARE_NUMBER}", rf"\1\2\3\2{MASK}\2"),
    # {"HF_TOKEN": ["…", "…"]}, {"HF_TOKEN": {"of": "…"}}, ["HF_TOKEN", "…"]
    (rf"(?i)({_SURE_NAME}\s*:\s*\[\s*)({_QUOTE})[^\[\]]*\]", rf"\1\2{MASK}\2]"),
    (rf"(?i)({_SURE_NAME}\s*:\s*{{\s*)({_QUOTE})[^{{}}]*}}", rf"\1\2{MASK}\2:\2{MASK}\2}}"),
    (rf"(?i)(\[\s*{_SURE_NAME}\s*,\s*{_QUOTE}){_VALUE}", rf"\1{MASK}"),
    # AWS_SECRET_ACCESS_KEY: …, DB_PASSWORD = …
    _after(
        r"(?:(?-i:PASSWORD|PASSWD|PASSPHRASE|\bPGPASS|[A-Z0-9]_(?:SECRET|TOKEN|CREDENTIAL|COOKIE|KEY|AUTH|PASS|PWD))|"
        rf"(?:\b|_)(?:{_ACCOUNTS}))(?::\s+|\s+=\s*|\s*=\s+)",
        _WORD,
        "[A-Za-z]",
    ),
    _after(r"(?-i:PASSWORD|PASSWD|PASSPHRASE|[A-Z0-9]_(?:SECRET|PWD))(?::\s+|\s+=\s*|\s*=\s+)", _NO_LETTERS),
    # --api-key …, --api-key "…", ["--api-key", "…"]
    _after(rf"{_LEAD}{_OPTION}\s+", _WORD, "[A-Za-z]"),
    (rf"(?i)({_QUOTE}--?[\w.-]*{_OPTION}{_QUOTE}\s*,\s*{_QUOTE}){_VALUE}", rf"\1{MASK}"),
    _after(rf"{_LEAD}{_PASSWORD}\s+", _NO_LETTERS),
    (rf"(?i)({_QUOTE}--?[\w.-]*{_PASSWORD}{_QUOTE}\s*,\s*{_QUOTE})[^\"'\\]+", rf"\1{MASK}"),
    (rf"(?i)({_QUOTE}--?[\w.-]*{_PASSWORD})({_QUOTE})(\s*,\s*){_BARE_NUMBER}", rf"\1\2\3\2{MASK}\2"),
    # curl -u user:password, curl -uuser:password
    (
        rf"((?:(?:^|[\s\"'])(?:-u|--user|--proxy-user)(?:\s+|=|{_QUOTE}\s*,\s*)(?:{_QUOTE})?|\bcurl\b.*[\s\"']-u)"
        r"[^\s:\"'\\]+:)[^\s\"'\\]+",
        rf"\1{MASK}",
    ),
    # https://user:password@host. Some writers put a backslash before each slash. The last @ ends the password.
    (r"([A-Za-z][A-Za-z0-9+.-]*:\\*/\\*/)[^/\s:\"'\\]*:[^/\s\"'\\]+@", rf"\1{MASK}@"),
    # https://host/file?X-Amz-Signature=…
    (r"(?i)([?&](?:x-[a-z]+-)?(?:sig|signature|credential|security-token)=)[^&\s\"'\\]+", rf"\1{MASK}"),
    (r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{MASK}"),
    (
        rf"(?i)(authorization(?:{_QUOTE})?\s*[:=,]\s*(?:{_QUOTE})?(?:basic|digest|token|apikey)\s+)[^\s\"'\\]+",
        rf"\1{MASK}",
    ),
    # Authorization: …, X-Api-Key: …, Cookie: name=…
    (rf"(?i)(authorization(?:{_QUOTE})?\s*[:=,]\s*(?:{_QUOTE})?)[^\s\"'\\]+([\"'\\]|$)", rf"\1{MASK}\2"),
    (
        r"(?i)(\b(?:x-(?:[a-z0-9]+-)*(?:key|token|secret)|api-key):\s*)[^\s\"'\\]+|"
        r"(\bcookie:\s*)[^\s\"'\\=;]+=[^\"'\\\n]*",
        rf"\1\2{MASK}",
    ),
    (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:[^\"\\]|\\+[^\"\\])*", rf"\1{MASK}"),
    ("|".join(f"(?:{row['pattern']})" for row in rule_rows("secret_formats")), MASK),
    (_HIDE, ""),
)
# Nearly all texts contain none of these, and this check takes a tenth of the time of the rules. `[bcglpsy]` are the
# last letters of the services in _ACCOUNTS.
_HINT = (
    rf"(?i:{_WORDS}|[bcglpsy]_(?:auth|pass|pwd)|:\\*/\\*/[^/\"]*@|bearer\s|authorization|[?&][a-z-]*sig|-user[\s\"'=\\])|"
    r"AUTH|PASS|_PWD|(?:^|[\s\"'])-u|" + "|".join(row["hint"] for row in rule_rows("secret_formats"))
)
_HINT_BYTES = re.compile(_HINT.encode())
_SHORT = 1 << 14


def may_hold_secrets(text: bytes) -> bool:
    """Return whether a text, JSON or not, may contain secrets. If False, the rules need not run."""
    # RE2 matches K (Kelvin) as k, and a backslash may escape any letter.
    return b"\\" in text or not text.isascii() or _HINT_BYTES.search(text) is not None


def file_may_hold_secrets(con: duckdb.DuckDBPyConnection, file: Path) -> bool:
    """Return whether a text file may contain secrets.

    DuckDB searches twenty times as fast as Python, but its start takes as long as Python takes for 16 KiB.
    """
    text = file.read_bytes()
    if len(text) < _SHORT or b"\\" in text or not text.isascii():
        return may_hold_secrets(text)
    query = f"SELECT {may_be_secret('content')} FROM read_text({quoted(file)})"
    return con.execute(query).fetchall()[0][0]


def masked_text(text: str, *, is_name: bool = False) -> str:
    """Return a text with the same masks as `masked`, for texts that are not in a table."""
    if not may_hold_secrets(text.encode("utf-8", "surrogatepass")):
        return text
    import pyarrow as pa
    from pyarrow import compute

    masked_array = pa.array([text], pa.string())
    # Arrow uses RE2, like DuckDB, so the time is linear in the text's length, whatever its content.
    for pattern, replacement in _rules(is_name):
        masked_array = compute.call_function(
            "replace_substring_regex", [masked_array], compute.ReplaceSubstringOptions(pattern, replacement)
        )
    return masked_array[0].as_py()


def masked(column: str, *, is_name: bool = False) -> str:
    """Return SQL for the text in a column, with values that look like secrets replaced by `MASK`.

    `is_name`: whether the text is the name of an event, a function or a file, in which `tokens=…` is not a secret.
    """
    text = column
    for pattern, replacement in _rules(is_name):
        text = f"regexp_replace({text}, {quoted(pattern)}, {quoted(replacement)}, 'g')"
    return f"CASE WHEN {may_be_secret(column)} THEN {text} ELSE {column} END"


def _rules(is_name: bool) -> tuple[tuple[str, str], ...]:
    return _HIDDEN, _PASSWORD_ASSIGNED, _ASSIGNED_IN_NAMES if is_name else _ASSIGNED, *_RULES


def may_be_secret(column: str) -> str:
    """Return a SQL condition that is true if the text in a column may contain a value that `masked` replaces."""
    return f"regexp_matches({column}, {quoted(_HINT)})"


def text_columns(described: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the names of the text columns of a dump, a snapshot or another set, without the file's own path.

    `described`: the rows of DESCRIBE.
    """
    return [name for name, kind, *_ in described if kind == "VARCHAR" and name != "path"]


def with_masks(query: str, texts: Sequence[str] = ("args", "extra"), names: Sequence[str] = ("name",)) -> str:
    """Return the query, by default of events, with values that look like secrets masked in text and name columns."""
    masked_columns = [(name, masked(name)) for name in texts] + [(name, masked(name, is_name=True)) for name in names]
    replaced = f" REPLACE ({', '.join(f'{text} AS {name}' for name, text in masked_columns)})" if masked_columns else ""
    return f"SELECT *{replaced} FROM (\n{query}\n)"


def with_masked_ids(events: pa.Table) -> pa.Table:
    """Return events with values that look like secrets masked in the id columns, which have few distinct values."""
    import pyarrow as pa

    for name in _IDS:
        column = events.column(name)
        if may_hold_secrets("\n".join(value for value in column.unique().to_pylist() if value).encode()):
            texts = [value and masked_text(value) for value in column.to_pylist()]
            events = events.set_column(events.column_names.index(name), name, pa.array(texts, column.type))
    return events
