"""HOW FAST AND HOW SMALL: work of a known size, timed against the arithmetic floor of this machine."""
