"""THE PAPER'S IDEA. Read this room first: config, tokens, heads, latents, model, checkpoint, card."""
