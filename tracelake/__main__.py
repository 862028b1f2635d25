"""The command line, as `python -m tracelake` and `tracelake`."""

import os
import signal


def _end(number: int, _: object) -> None:
    os._exit(128 + number)


# Before all other imports, because a signal during an import would print a traceback or be swallowed.
for _number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _end)

from pipelines.base.stopping import listen  # noqa: E402


def main() -> None:
    """Run a command. Signals are handled before the other imports, which take a tenth of a second."""
    listen()
    from pipelines.faces.cli.app import app

    app()


if __name__ == "__main__":
    main()
