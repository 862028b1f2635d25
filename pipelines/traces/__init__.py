"""One trace file becomes one staged table, its metadata and its findings."""
