"""THE FROZEN LLM: loading it, turning text into tokens, running it. The only room that knows transformers' quirks."""
