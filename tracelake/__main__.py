"""`python -m tracelake`: the command line."""

from pipelines.faces.cli.app import app

app()
