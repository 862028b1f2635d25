"""`python -m tracelake`, and `tracelake`: the command line."""

import os
import signal


def _end(number: int, _: object) -> None:
    os._exit(128 + number)


# Before anything else is imported: a signal during an import would print a traceback, or be swallowed there.
for _number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _end)

from pipelines.base.stopping import listen  # noqa: E402


def main() -> None:
    """Run a command. Signals are heard before anything else is imported, which takes a tenth of a second."""
    listen()
    from pipelines.faces.cli.app import app

    app()


if __name__ == "__main__":
    main()
