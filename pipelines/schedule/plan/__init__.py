"""Tasks and plans: declared, read from files, validated."""
