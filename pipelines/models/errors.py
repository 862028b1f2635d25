"""Errors of the models' room."""

from pipelines.base.errors import TracelakeError


class CatalogError(TracelakeError):
    """A model's file does not follow the rules, or a name is not a table; the message says where and what to write."""
