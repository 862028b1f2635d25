"""Prediction of a plan's cost, and search for the best legal plan."""
