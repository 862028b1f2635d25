"""`python -m tracelake`, and `tracelake`: the command line."""

from pipelines.base.stopping import listen


def main() -> None:
    """Run a command. Signals are heard before anything else is imported, which takes a tenth of a second."""
    listen()
    from pipelines.faces.cli.app import app

    app()


if __name__ == "__main__":
    main()
