"""Errors of the package `models`."""

from pipelines.base.errors import TracelakeError


class CatalogError(TracelakeError):
    """A model's file breaks the rules, or a name is not a table. The message gives the location and the remedy."""
