"""The exact search: dynamic programming over cuts, label setting, tree bound, Lagrangian prices."""
