"""Many jobs on one machine or many, every result kept once: spaces of designs, and campaigns that measure."""
