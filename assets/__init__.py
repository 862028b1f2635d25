"""Dagster's face of each table; computes nothing."""
