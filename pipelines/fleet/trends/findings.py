"""Findings about the fleet, each a sentence that is posted to a webhook once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipelines.base.foreign_text import visible
from pipelines.fleet.trends.fleet_today import Fleet

FORMATS = ("json", "slack")
_SECONDS = 10.0
_REFUSALS = (400, 413, 422)  # bad request, too large, unprocessable: not about the address or the rate
_REDIRECTS = (301, 302, 303, 307, 308)


class NotificationFailed(RuntimeError):
    """A failure to deliver a message. The text names the host and the reason."""


class MessageRefused(NotificationFailed):
    """A refusal of one message by the webhook, which may accept other messages."""


@dataclass(frozen=True)
class Finding:
    """A finding to post. `kind`: regression, straggler, rejected, failed_model or failed_run.

    `says`: a sentence. `about`: identifies the subject, without numbers that change from run to run.
    """

    kind: str
    says: str
    about: str

    @property
    def key(self) -> str:
        """Return a hash over kind and subject, so that a finding keeps its key when its numbers change."""
        return sha256(f"{self.kind}\n{self.about}".encode()).hexdigest()[:16]


def findings(fleet: Fleet) -> Iterator[Finding]:
    """Yield each regression, persistent straggler, rejected file and failed model."""
    for job_verdict in fleet.worse:
        if job_verdict.verdict.status == "REGRESSION":
            change = "" if job_verdict.verdict.effect is None else f" by {100 * job_verdict.verdict.effect:+.1f} %"
            sentence = f"{job_verdict.job} ({job_verdict.n_ranks} ranks): {job_verdict.metric} got worse{change}; newest capture {job_verdict.newest}"
            yield Finding(
                "regression",
                sentence,
                f"{job_verdict.job}\n{job_verdict.hardware}\n{job_verdict.n_ranks}\n{job_verdict.metric}",
            )
    for row in fleet.stragglers:
        sentence = (
            f"{row['job']}: rank {row['rank']} is the straggler in {row['n_straggler']} of {row['n_captures']} captures"
        )
        yield Finding("straggler", sentence, f"{row['job']}\n{row['rank']}")
    for row in fleet.rejects:
        sentence = f"{Path(row['path']).name} was not read: {row['reason']}"
        yield Finding("rejected", sentence, f"{row['path']}\n{row['reason']}")
    # A model that fails on a trace has a row for each table that needs it, often dozens.
    for row in {(row["model"], row["trace_id"]): row for row in fleet.failures}.values():
        sentence = f"tables lack a trace: the model {row['model']} failed on {row['trace_id']}: {row['reason']}"
        yield Finding("failed_model", sentence, f"{row['model']}\n{row['trace_id']}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that treats redirects as errors, because urllib would repeat the POST as a GET without the message."""

    def redirect_request(self, *_: Any) -> None:
        """Do not follow the redirect."""


def post(url: str, finding: Finding, form: str = "json") -> None:
    """Post a finding to a webhook, as JSON (kind, says, about) or in Slack's format. Raise NotificationFailed."""
    sentence = visible(finding.says)
    body = (
        {"text": f"*tracelake*, {finding.kind}: {_in_slack(sentence)}"}
        if form == "slack"
        else {**asdict(finding), "says": sentence}
    )
    headers = {"Content-Type": "application/json", "User-Agent": "tracelake"}
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
            answer.read(1)
    except (urllib.error.URLError, OSError, ValueError, HTTPException) as error:
        # The message names only the host, because a webhook's path is a secret.
        of_message = isinstance(error, urllib.error.HTTPError) and error.code in _REFUSALS
        failure = MessageRefused if of_message else NotificationFailed
        raise failure(f"the webhook at {_host(url)} did not accept the message: {_why(error)}") from None


def _why(error: Any) -> str:
    """Return the reason without the address, because messages of urllib and http.client may contain all of it."""
    if isinstance(error, urllib.error.HTTPError):
        redirects = ": it redirects, and the address has to be the one it redirects to"
        return f"HTTP {error.code}{redirects if error.code in _REDIRECTS else ''}"
    if isinstance(error, ValueError | InvalidURL):
        return "it is not an http:// or https:// address"
    if isinstance(error, HTTPException):
        return f"its answer is not HTTP ({type(error).__name__})"
    return str(getattr(error, "reason", error))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "an address without a host"
    except ValueError:
        return "an invalid address"


def _in_slack(text: str) -> str:
    """Escape Slack's three special characters, see https://api.slack.com/reference/surfaces/formatting#escaping."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
