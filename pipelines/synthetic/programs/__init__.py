"""Programs of a rank's steps for the machine, one file per shape."""
