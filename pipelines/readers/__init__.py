"""Every kind of file → rows of the lake; one folder each."""
