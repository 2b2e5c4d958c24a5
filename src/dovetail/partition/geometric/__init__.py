"""Continuous shares by geometric programming: our solver, and the method of GP partitioning 2023."""
