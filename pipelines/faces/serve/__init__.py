"""`tracelake serve`: a lake's tables and questions on a page in the browser, read-only (docs/console.md)."""
