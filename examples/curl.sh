#!/bin/sh
# Any language that speaks HTTP, with a server of Afterword:
#
#     afterword serve MODEL --port 8000
#     OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=my-key sh examples/curl.sh
set -eu

ask() { # PATH BODY
    curl --silent --show-error --fail-with-body --max-time 60 "$OPENAI_BASE_URL/$1" \
        -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" -H 'Content-Type: application/json' -d "$2"
    echo
}

# As OpenAI's endpoint; without "model", the one that is served.
ask embeddings '{"input": ["Why is the sky blue?", "How do bees make honey?"], "prompt_name": "query"}'

# What only Afterword has: the embedding as text.
ask decode '{"input": "Why is the sky blue?", "max_new_tokens": 16}'
