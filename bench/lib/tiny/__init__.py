"""MLPerf Tiny: its networks beside LiteRT, and their accelerators beside published ones."""
