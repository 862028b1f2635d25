"""Tests that the benchmarks, the proofs and the attacks run."""
