"""Commands on one trace."""
