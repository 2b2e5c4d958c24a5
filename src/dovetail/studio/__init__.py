"""A page on this machine that plans while its question is changed; the extra `serve` has what it needs."""
