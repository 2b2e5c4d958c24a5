"""Streaming engines: one hardware module per layer, one pixel per clock."""
