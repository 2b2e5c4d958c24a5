"""Throughput: the shortest interval between frames, by busy times."""
