"""The read side of the lake: committed files, damage, the valid rows of a table, and untrusted queries."""
