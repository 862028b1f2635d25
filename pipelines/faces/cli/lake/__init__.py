"""Commands on a lake as a whole."""
