"""What `bench/clocks.py` simulates beside accelerators of every architecture: random plans, and networks of the zoo."""
