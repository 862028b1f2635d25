"""The parts of both engines, each built on the one before: state, stopping, batches, submitting. base.py puts them
together.
"""
