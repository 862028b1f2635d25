"""The models: the catalog of SQL files, their execution, and the tables computed in Python."""
