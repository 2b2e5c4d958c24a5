"""What hardware is made of, counted before it is built: streams, folds, rounding, adder graphs, arrays."""
