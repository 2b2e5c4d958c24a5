"""Parts of the claim that hybrid accelerators beat either kind of engine alone."""
