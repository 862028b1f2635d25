"""Definitions, jobs, schedules, sensors and resources of Dagster. The computations are in other packages."""
