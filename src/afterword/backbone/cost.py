"""What a backbone costs: operations and bytes, counted from its weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

Count = int | float
"""Tokens; a mean of several samples need not be whole."""


@dataclass(frozen=True)
class Cost:
    """Counts from which every estimate follows (DESIGN §6).

    A multiplication and an addition are two operations. Norms, activations and lookups are not counted; attention is
    counted apart, since it grows with the square of the length.

    Attributes:
        body: `N`: weights that each token is multiplied with, without embeddings and vocabulary head.
        head: `d·V`: weights of the vocabulary head.
        attention: Layers · heads · head width: multiplications of one token with one key.
        kept: Numbers of the key/value cache a token.
        parameters: All weights of the model, a tied one once.
    """

    body: int
    head: int
    attention: int
    kept: int
    parameters: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> Cost:
        """Count a causal LM; it may stand on the `meta` device, without any memory behind it.

        Experts count as if all were used, so a mixture of experts costs less than is said here.
        """
        config = model.config.get_text_config()
        body = sum(layer.weight.numel() for layer in model.get_decoder().modules() if isinstance(layer, nn.Linear))
        head = model.get_output_embeddings().weight.numel()
        layers, width = config.num_hidden_layers, head_width(config)
        kept = 2 * layers * getattr(config, "num_key_value_heads", config.num_attention_heads) * width
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return cls(body, head, layers * config.num_attention_heads * width, kept, parameters)

    def forward(self, tokens: Count) -> Count:
        """Return the operations of a forward pass over tokens, without attention: `2N` each."""
        return 2 * self.body * tokens

    def attending(self, tokens: Count, length: Count) -> Count:
        """Return the operations of causal attention for tokens that end a sequence of a length."""
        return 4 * self.attention * tokens * (length - tokens / 2)

    def training(self, query: Count, learned: Count, soft: Count, response: Count) -> Count:
        """Return the least that one sample of training takes: `2Nq + 4Nk + 4N(n+r) + 4dV·r`.

        Args:
            query: Tokens of the query, `q`.
            learned: Thought and compression tokens, `k`.
            soft: Vectors of the soft prompt, `n`; 0 where the sample is not reconstructed.
            response: Tokens of the response, `r`; 0 where the sample is not reconstructed.
        """
        body = self.forward(query) + 2 * self.forward(learned) + 2 * self.forward(soft + response)
        return body + 4 * self.head * response

    def naive_training(self, query: Count, learned: Count, soft: Count, response: Count) -> Count:
        """Return what a sample takes with checkpointing, full graphs and all logits: `6N(q+k) + 6N(n+r) + 4dV(n+r)`."""
        return 3 * self.forward(query + learned + soft + response) + 4 * self.head * (soft + response)

    def encoding(self, query: Count, learned: Count) -> Count:
        """Return what one embedding takes: `2N(q+k)`."""
        return self.forward(query + learned)

    def writing(self, prompt: Count, response: Count) -> Count:
        """Return what one written response takes: each token once through the body, written ones through the head."""
        return self.forward(prompt + response) + 2 * self.head * response


def head_width(config: PretrainedConfig) -> int:
    """Return the width of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
