"""GP partitioning 2023."""
