"""All computation of tracelake, one sub-package per step; never imports dagster."""

__version__ = "0.2.0"
