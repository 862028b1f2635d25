"""Ingesting and modelling on an engine of the user's choice: in this process, on Ray, on Dask. We schedule nothing ourselves."""
