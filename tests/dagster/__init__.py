"""Tests of assets/ and dagster_project/."""
