"""One class per operator: shape, work, exact arithmetic, and the shares it can be cut into."""
