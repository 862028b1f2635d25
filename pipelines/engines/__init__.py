"""Ingesting and modelling on an engine of the user's choice: this process or Ray. The engine schedules."""
