"""`tracelake mcp`: a lake's tables and questions as tools for language models, read-only (docs/console.md)."""
