"""Tests of what is run rather than tested: it has to run."""
