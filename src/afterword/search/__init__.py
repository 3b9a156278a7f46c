"""SEARCH: an index of documents with any encoder, kept in numpy's, LanceDB's or FAISS's way.

    documents ─▶ build ─▶ store (numpy · lancedb · faiss) ─▶ index ─▶ hits, explained

An index is a folder with a manifest: the encoder's fingerprint, its two prompts, and how documents are kept. Documents
come as a stream, a kill at any byte costs at most the chunk that was being encoded, and nothing here holds all vectors
in memory but FAISS, whose graph is made of them.
"""
