"""The models: the catalog of SQL files, running them, and the tables computed in Python."""
