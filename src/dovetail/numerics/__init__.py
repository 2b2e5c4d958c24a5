"""Numbers: fixed-point schemes, calibration, the reference interpreter and its outside oracle."""
