"""Parts of the claim that plans are near their bounds and found fast."""
