"""Certificates: proofs that no plan is below a bound, and a checker that shares no code with the searches that found them."""
