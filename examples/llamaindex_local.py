"""LlamaIndex, with a model of Afterword in the same process: `pip install llama-index-embeddings-huggingface`.

python examples/llamaindex_local.py MODEL
"""

import json
import sys
from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]
QUESTION = "Why is the sky blue?"

# LlamaIndex does not take up the prompts of a model, so they are handed over. sentence-transformers asks for
# trust_remote_code for every module that is not its own; there is no code in the folder.
prompts = json.loads(Path(sys.argv[1], "config_sentence_transformers.json").read_text(encoding="utf-8"))["prompts"]
embedding = HuggingFaceEmbedding(
    model_name=sys.argv[1],
    query_instruction=prompts["query"],
    text_instruction=prompts["document"],
    trust_remote_code=True,
)
index = VectorStoreIndex([TextNode(text=text) for text in DOCUMENTS], embed_model=embedding)

print(QUESTION)
for hit in index.as_retriever(similarity_top_k=len(DOCUMENTS)).retrieve(QUESTION):
    print(f"{hit.score:.4f}  {hit.node.get_content()}")
