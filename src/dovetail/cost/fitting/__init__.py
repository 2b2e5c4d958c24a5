"""Fitting device models to measurements: `python -m dovetail.cost.fitting --data DIR -o MODELS`.

Rows come in as columns (`rows`); three ways of fitting are used, each by what it is good at: non-negative least
squares on a dictionary of monomials that mean something (`nonnegative`), softmax-affine posynomials in log space
(`softmax`), and a smoothed table of what physics leaves over (`kriging`). `recipes` says which quantity takes what.
"""
