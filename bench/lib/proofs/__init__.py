"""Parts of `bench/dhm.py` that show designs equal to the reference bit for bit, clock by clock."""
