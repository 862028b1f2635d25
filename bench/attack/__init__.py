"""Attacks on a lake: kills, full disks, damaged files, poison in the stream, partial requests, missing ranks (`make attack`)."""
