"""Attacks on a lake: kills, full disks, damaged files, poison in the stream, requests by halves, ranks that are missing; `make attack`."""
