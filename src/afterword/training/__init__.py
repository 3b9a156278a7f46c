"""HOW ANYTHING IS TRAINED: objective protocol, one loop, losses, run folder, the generative objective."""
