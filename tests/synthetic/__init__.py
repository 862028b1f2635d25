"""Tests of pipelines.synthetic."""
