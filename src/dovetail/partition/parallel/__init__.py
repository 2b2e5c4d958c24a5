"""Branches that run at the same time on different devices."""
