"""Runs on a lake: they update, check and remove tables, in a folder or a DuckLake behind one interface."""
