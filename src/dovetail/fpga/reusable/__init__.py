"""Reusable engines: a few arrays that compute layer after layer of a block of nodes, weights streamed from memory."""
