"""What a backbone costs: operations and bytes, counted from its weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from afterword.backbone.families import sliding_window

Count = int | float
"""Tokens; a mean of several samples need not be whole."""


@dataclass(frozen=True)
class Cost:
    """Counts from which every estimate follows (DESIGN §6).

    A multiplication and an addition are two operations. Norms, activations and lookups are not counted. Attention is
    counted apart, by the lengths of each text, since it grows with their square.

    Attributes:
        body: `N`: weights that each token is multiplied with, without embeddings and vocabulary head.
        head: `d·V`: weights of the vocabulary head.
        attention: Layers · heads · head width: multiplications of one token with one key.
        sliding: Of these, those in layers with a sliding window.
        window: Most keys that a token sees there, itself counted.
        kept: Numbers of the key/value cache a token.
        parameters: All weights of the model, a tied one once.
    """

    body: int
    head: int
    attention: int
    kept: int
    parameters: int
    sliding: int = 0
    window: int | None = None

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
        window, kinds = sliding_window(config), getattr(config, "layer_types", None)
        layer = config.num_attention_heads * width
        sliding = (kinds.count("sliding_attention") if kinds else layers) * layer if window else 0
        return cls(body, head, layers * layer, kept, parameters, sliding, window)

    def forward(self, tokens: Count) -> Count:
        """Return the operations of a forward pass over tokens, without attention: `2N` each."""
        return 2 * self.body * tokens

    def attending(self, tokens: Count, length: Count) -> Count:
        """Return the operations of causal attention for tokens that end a sequence of a length.

        Scores and weighted values of what each token may see, itself counted: half of the square of a whole sequence.
        """
        everything = (self.attention - self.sliding) * _seen(tokens, length)
        return 4 * (everything + self.sliding * _seen(tokens, length, self.window))

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

    def training_attention(
        self, query: Count, learned: Count, soft: Count, response: Count, shared: Count = 0
    ) -> Count:
        """Return the least that attention takes in one sample of training (arguments as in `training`).

        The backward pass of scores and values takes twice the forward pass, but the keys and values of the query have
        no gradient, so half of that is left out where learned tokens see the query.

        Args:
            query: `q`.
            learned: `k`.
            soft: `n`.
            response: `r`.
            shared: Tokens of a prefix that the query sees and that runs once for all samples.
        """
        first = self.attending(query, shared + query)
        appended = 2 * self.attending(learned, shared + query + learned) + self.attending(learned, learned)
        return first + appended + 3 * self.attending(soft + response, soft + response)

    def naive_training(self, query: Count, learned: Count, soft: Count, response: Count) -> Count:
        """Return what a sample takes with checkpointing, full graphs and all logits: `6N(q+k) + 6N(n+r) + 4dV(n+r)`."""
        return 3 * self.forward(query + learned + soft + response) + 4 * self.head * (soft + response)

    def encoding(self, query: Count, learned: Count) -> Count:
        """Return what one embedding takes: `2N(q+k)`."""
        return self.forward(query + learned)

    def writing(self, prompt: Count, response: Count) -> Count:
        """Return what one written response takes: each token once through the body, written ones through the head."""
        return self.forward(prompt + response) + 2 * self.head * response


def _seen(tokens: Count, length: Count, window: int | None = None) -> Count:
    """Return how many keys the last tokens of a sequence see in all, each at most a window."""
    before = length - tokens
    if window is None or length <= window:
        return tokens * before + tokens * (tokens + 1) / 2
    within = max(0, window - before)  # tokens that still see everything
    return _seen(within, before + within) + (tokens - within) * window


def head_width(config: PretrainedConfig) -> int:
    """Return the width of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
