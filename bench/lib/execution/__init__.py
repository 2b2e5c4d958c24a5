"""Plans run on a CPU and a GPU, and the terms of their time measured apart."""
