"""`python -m tracelake`: the command line."""

from pipelines.cli.app import app

app()
