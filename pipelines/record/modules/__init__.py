"""The modules of a model: hooks on them, their part of the autograd graph, and their operators."""
