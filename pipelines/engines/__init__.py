"""Ingesting and modelling on an engine of the user's choice: this process, Ray or Dask. The engine schedules."""
