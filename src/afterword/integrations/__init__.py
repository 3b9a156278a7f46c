"""IN THE TOOLS PEOPLE ALREADY USE: a saved model in sentence-transformers, with Afterword installed and without."""
