"""Definitions, jobs, schedules, sensors and resources: wiring only."""
