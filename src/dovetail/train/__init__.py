"""Training networks of few bits (the `train` extra): learned and uniform quantizers, recipes that resume, export to integers."""
