"""Methods of other works (Table 1 of GP partitioning 2023) as solvers of the same problems."""
