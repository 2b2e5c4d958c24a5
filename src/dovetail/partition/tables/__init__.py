"""What every candidate split of every node costs, reads and leaves, as arrays."""
