"""What benchmarks share: parts of one claim, peers, proofs, networks; nothing here is run by itself."""
