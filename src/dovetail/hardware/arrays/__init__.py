"""Reusable arrays: the layers they compute, and the layer program that says when each job runs and where maps lie."""
