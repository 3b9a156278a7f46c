"""The data: queries, responses and targets, and the shards that keep them.

    formats ─▶ readers ─▶ queries ─▶ responses ─▶ targets        from a file to what training reads
    records  manifest  lock  shard_folder  shards  vectors       what the artefacts are made of

Every artefact is a folder with a `manifest.json` that says what made it, and records keyed by id. Nothing here holds
a whole corpus of responses or vectors in memory, and a kill at any byte costs at most the record being written.
"""
