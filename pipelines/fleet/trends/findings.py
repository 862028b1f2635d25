"""What somebody should be told about the fleet: a sentence each, told once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipelines.base.foreign_text import visible
from pipelines.fleet.trends.fleet_today import Fleet

FORMATS = ("json", "slack")
_SECONDS = 10.0


class NotTold(RuntimeError):
    """A message did not arrive; the text says where it should have gone and why."""


@dataclass(frozen=True)
class Finding:
    """Something to tell. `kind`: regression, straggler, rejected, failed_model or failed_run; `says`: a sentence."""

    kind: str
    says: str
    about: str

    @property
    def key(self) -> str:
        """The same finding has the same key the next time: what it is about, not its numbers."""
        return sha256(f"{self.kind}\n{self.about}".encode()).hexdigest()[:16]


def findings(fleet: Fleet) -> Iterator[Finding]:
    """Each regression, straggler, file that was not read, and model that failed."""
    for one in fleet.worse:
        if one.verdict.status == "REGRESSION":
            change = "" if one.verdict.effect is None else f" by {100 * one.verdict.effect:+.1f} %"
            says = f"{one.job} ({one.n_ranks} ranks): {one.metric} got worse{change}; newest capture {one.newest}"
            yield Finding("regression", says, f"{one.job}\n{one.hardware}\n{one.n_ranks}\n{one.metric}")
    for row in fleet.stragglers:
        job = row["job"] or "captures without a job"
        says = f"{job}: rank {row['rank']} is the straggler in {row['n_straggler']} of {row['n_captures']} captures"
        yield Finding("straggler", says, f"{row['job']}\n{row['rank']}")
    for row in fleet.rejects:
        says = f"{Path(row['path']).name} was not read: {row['reason']}"
        yield Finding("rejected", says, f"{row['path']}\n{row['reason']}")
    for row in fleet.failures:
        says = (
            f"{row['table_name']} lacks a trace: the model {row['model']} failed on {row['trace_id']}: {row['reason']}"
        )
        yield Finding("failed_model", says, f"{row['table_name']}\n{row['trace_id']}")


def tell(url: str, finding: Finding, form: str = "json") -> None:
    """Post a finding to a webhook: as an object with kind, says and about, or as Slack takes it. Raises NotTold."""
    said = visible(finding.says)
    body = (
        {"text": f"*tracelake*, {finding.kind}: {_in_slack(said)}"}
        if form == "slack"
        else {**asdict(finding), "says": said}
    )
    headers = {"Content-Type": "application/json", "User-Agent": "tracelake"}
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            answer.read(1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        # Not the address: a webhook's path is its password.
        raise NotTold(f"the webhook at {_host(url)} did not take the message: {_why(error)}") from None


def _why(error: Any) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return (
        "it is no http:// or https:// address"
        if isinstance(error, ValueError)
        else str(getattr(error, "reason", error))
    )


def _host(url: str) -> str:
    return urlsplit(url).hostname or "an address without a host"


def _in_slack(text: str) -> str:
    """Slack's three characters: https://api.slack.com/reference/surfaces/formatting#escaping."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
