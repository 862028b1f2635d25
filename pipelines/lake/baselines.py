"""Named baselines of a lake, in the file `baselines.json`. A baseline is a trace or capture to compare others with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from pipelines.base.close_names import meant
from pipelines.base.errors import TracelakeError
from pipelines.base.whole_file import write_whole
from pipelines.lake.commit.locks import held

FILE = "baselines.json"
_LOCK = ".baselines.lock"
_NAME = re.compile(r"[\w./-]{1,100}", re.ASCII)


class NoBaseline(TracelakeError, LookupError):
    """A name that is not a baseline of the lake, or cannot be one."""

    hint = "Set one with `tracelake baseline set NAME TRACE`."


def baselines(root: Path) -> dict[str, str]:
    """Return the id of a trace or a capture by name, sorted. Raise NoBaseline if the file is damaged."""
    try:
        content = json.loads((root / FILE).read_text(encoding="utf-8"))
        return {str(name): str(content[name]) for name in sorted(content)}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise NoBaseline(f"{root / FILE} is damaged ({error}): remove it and set the baselines again") from None


def baseline(root: Path, name: str) -> str:
    """Return the id of a baseline. Raise NoBaseline, with a similar name, if it does not exist."""
    ids = baselines(root)
    if name not in ids:
        hint = f"Set one with `tracelake baseline set NAME TRACE --lake {shlex.quote(str(root))}`."
        raise NoBaseline(f"the lake {root} has no baseline {name!r}: {meant(name, ids)}", hint)
    return ids[name]


def set_baseline(root: Path, name: str, trace_or_capture_id: str | None) -> None:
    """Set a baseline to an id, or remove the baseline if the id is None.

    Raise NoBaseline if the name is invalid, or if the baseline to remove does not exist.
    """
    if not _NAME.fullmatch(name):
        raise NoBaseline(
            f"a baseline cannot be called {name!r}: use up to 100 letters, digits, dots, dashes and slashes"
        )
    if trace_or_capture_id is None:
        baseline(root, name)  # check before locking, because locking creates the lake's folder and its layout marker
    with held(root, _LOCK):
        ids = baselines(root)
        if trace_or_capture_id is None:
            baseline(root, name)
            del ids[name]
        else:
            ids[name] = trace_or_capture_id
        write_whole(root / FILE, json.dumps(ids, indent=1, sort_keys=True))
