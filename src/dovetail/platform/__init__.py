"""Boards: devices and links as frozen values, every number with its source."""
