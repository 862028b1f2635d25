"""Readers of every kind of file into rows of the lake, one folder per kind."""
