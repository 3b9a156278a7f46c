"""The openai package, with a server of Afterword behind it.

afterword serve MODEL --port 8000
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=my-key python examples/openai_client.py
"""

import numpy as np
from openai import OpenAI

DOCUMENTS = [
    "Air scatters short wavelengths of sunlight more than long ones.",
    "Bees collect nectar and dry it in the comb until it is thick.",
    "The tide follows the pull of the moon.",
]
QUESTION = "Why is the sky blue?"

client = OpenAI()  # reads the two variables above
model = client.models.list().data[0].id


def embed(texts: list[str], prompt_name: str) -> np.ndarray:
    """Embed texts as one side of a search; `prompt_name` is a field that only this server knows."""
    answer = client.embeddings.create(model=model, input=texts, extra_body={"prompt_name": prompt_name})
    return np.array([item.embedding for item in answer.data])


scores = embed([QUESTION], "query") @ embed(DOCUMENTS, "document").T  # vectors have length 1
print(QUESTION)
for i in np.argsort(-scores[0]):
    print(f"{scores[0, i]:.4f}  {DOCUMENTS[i]}")
