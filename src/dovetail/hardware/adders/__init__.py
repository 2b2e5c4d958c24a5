"""Products with constant matrices as graphs of shift-and-add: digits, sharing, common subexpressions."""
