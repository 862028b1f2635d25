"""What a rank does in each step, as programs for the machine: one file for each shape."""
