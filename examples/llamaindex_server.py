"""LlamaIndex, with a server of Afterword behind its OpenAI embeddings: `pip install llama-index-embeddings-openai`.

afterword serve MODEL --port 8000
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=my-key python examples/llamaindex_server.py
"""

import os

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.embeddings.openai import OpenAIEmbedding
from openai import OpenAI

DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]
QUESTION = "Why is the sky blue?"

# `model_name`, not `model`: the latter takes OpenAI's own names only.
embedding = OpenAIEmbedding(model_name=OpenAI().models.list().data[0].id, api_base=os.environ["OPENAI_BASE_URL"])
index = VectorStoreIndex([TextNode(text=text) for text in DOCUMENTS], embed_model=embedding)

print(QUESTION)
for hit in index.as_retriever(similarity_top_k=len(DOCUMENTS)).retrieve(QUESTION):
    print(f"{hit.score:.4f}  {hit.node.get_content()}")
