"""Ingestion and modelling on an engine that the user chooses (this process or Ray) and that schedules the work."""
