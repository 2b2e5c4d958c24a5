"""What GPU benchmarks share: timing, networks and their peers, fitting of costs, judging by held-out layers."""
