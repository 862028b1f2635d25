"""The read side: committed files, damage, the valid rows of a table, and untrusted queries."""
