"""What is there: committed files, damage, the rows of a table, queries of others."""
