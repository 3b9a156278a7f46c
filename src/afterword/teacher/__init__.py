"""THE SPACE WE ALIGN TO: any SentenceTransformer, or the LLM itself."""
