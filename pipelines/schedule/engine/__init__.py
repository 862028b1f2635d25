"""The parts of both engines, one on top of the other: state, stopping, batches, submitting. base.py is the whole."""
