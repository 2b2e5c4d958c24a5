"""Which device computes which slice of which node: candidates, the judge, solvers with proven bounds, explanations."""
