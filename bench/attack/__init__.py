"""Attacks on a lake: kills, full disks, damaged files, poison in the stream; `make attack`."""
