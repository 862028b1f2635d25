"""The modules of a model and what they call: hooks on them, their part of the autograd graph, their operators."""
