"""LangChain, with a model of Afterword in the same process: `pip install langchain-huggingface`.

python examples/langchain_local.py MODEL
"""

import sys

from langchain_core.vectorstores import InMemoryVectorStore
from langchain_huggingface import HuggingFaceEmbeddings

DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]
QUESTION = "Why is the sky blue?"

embeddings = HuggingFaceEmbeddings(
    model_name=sys.argv[1],
    # sentence-transformers asks for this for every module that is not its own; there is no code in the folder.
    model_kwargs={"trust_remote_code": True},
    encode_kwargs={"prompt_name": "document"},
    query_encode_kwargs={"prompt_name": "query"},
)
store = InMemoryVectorStore(embeddings)
store.add_texts(DOCUMENTS)

print(QUESTION)
for document, score in store.similarity_search_with_score(QUESTION, k=len(DOCUMENTS)):
    print(f"{score:.4f}  {document.page_content}")
