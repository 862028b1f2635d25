"""Dagster assets for the tables. The package itself computes nothing."""
