"""Plans on a virtual clock."""
