"""Tasks and plans: declaration, files, validation."""
