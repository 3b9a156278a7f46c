"""Scores for any encoder: mteb's benchmarks, AdvBench-IR, BRIGHT, and a user's own files."""
