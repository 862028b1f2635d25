"""A fleet's folder over a night, in minutes: `make soak`."""
