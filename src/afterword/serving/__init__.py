"""Any encoder over HTTP: the embeddings endpoint of OpenAI, and what only an Afterword model can say."""
