"""Timelines, Gantt charts and printed tables of runs."""
