"""Python's interface: `import dovetail as dt` offers what is here, loaded on first use."""
