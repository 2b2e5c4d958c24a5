"""Whole chips for boards: clock, serial line and the link shell around a design, pins to pins."""
