"""All computing of tracelake, a sub-package a step; never imports dagster."""

__version__ = "0.1.0"
