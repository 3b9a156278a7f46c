"""PAGES THAT NEED NOTHING BESIDE THEM: HTML with its style inside, without scripts, and the charts on it."""
