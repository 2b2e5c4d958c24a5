"""Papers again, on the models of this repository: one module per paper, its printed values beside ours."""
