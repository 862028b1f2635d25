"""The soak test, a night of a fleet's inbox in minutes: `make soak`."""
