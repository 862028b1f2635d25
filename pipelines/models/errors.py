"""Errors of the models' room."""


class CatalogError(Exception):
    """A model's file does not follow the rules, or a name is not a table; the message says where and what to write."""
