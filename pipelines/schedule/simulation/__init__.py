"""Simulation of plans on a virtual clock."""
