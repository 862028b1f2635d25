"""Dagster assets for the tables; computes nothing itself."""
