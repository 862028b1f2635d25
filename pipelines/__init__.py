"""All computing of tracelake, a sub-package a step; never imports dagster."""
