"""LangChain, with a server of Afterword behind its OpenAI embeddings: `pip install langchain-openai`.

afterword serve MODEL --port 8000
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=my-key python examples/langchain_server.py
"""

from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings
from openai import OpenAI

DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]
QUESTION = "Why is the sky blue?"

# LangChain would cut texts into the token ids of OpenAI's models; this server wants texts, so that is switched off.
embeddings = OpenAIEmbeddings(model=OpenAI().models.list().data[0].id, check_embedding_ctx_length=False)
store = InMemoryVectorStore(embeddings)
store.add_texts(DOCUMENTS)

print(QUESTION)
for document, score in store.similarity_search_with_score(QUESTION, k=len(DOCUMENTS)):
    print(f"{score:.4f}  {document.page_content}")
