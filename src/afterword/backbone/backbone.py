"""The frozen LLM with its tokenizer: one object, one copy of the weights, four jobs."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from afterword.backbone.compiled import compile_layers, eagerly
from afterword.backbone.families import UNKNOWN, Family, family_of, sliding_window
from afterword.backbone.frames import render_chat
from afterword.backbone.fused import fuse, unfuse
from afterword.backbone.head import VocabularyHead
from afterword.backbone.packed import Kept, Packing, can_pack
from afterword.backbone.text import TextTokenizer
from afterword.encoder import hash_tensors
from afterword.errors import SettingError


class Backbone:
    """A causal language model that nobody trains.

    It encodes (`passes`), reconstructs and decodes from soft prompts, and writes responses (`generate`), always with
    the same weights. Its parameters are frozen and it stays in eval mode: gradient checkpointing, which works in train
    mode only, would drop the key/value cache that the frozen-prefix pass stands on.

    Args:
        model: A causal LM of transformers.
        tokenizer: Its tokenizer.
        name: The name by which it can be loaded again.
        revision: Its revision on the hub, if any.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, revision: str | None = None
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.text = TextTokenizer(tokenizer)
        self.name = name
        self.revision = revision
        self.config = model.config.get_text_config()
        self.family: Family = family_of(self.config)
        self.body: nn.Module = model.get_decoder()
        fuse(self.model)
        self._cache_argument = _cache_argument(self.body)
        self.compiled = False
        self._shared: OrderedDict[Hashable, Kept] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_shared": OrderedDict()}  # what it keeps can be computed again

    def compile(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compile the layers with torch.compile, for encoding and for the queries in training.

        Where gradients are asked for, and where text is written, they run as before. The first pass afterwards takes a
        while (20 seconds and more on a CPU); it pays where very many texts follow.

        Raises:
            SettingError: The family is not known, or what compiling needs is missing.
        """
        if not self.packs:
            raise SettingError(f"compile is for families that run packed; {self.config.model_type} is not one of them")
        unfuse(self.model)
        compile_layers(self.body, self.device, backend)
        self.compiled = True

    def weights_changed(self) -> None:
        """Forget what was computed from the weights; whoever changes them (a teacher's adapters) says so here."""
        self._shared.clear()
        self.__dict__.pop("fingerprint", None)

    @property
    def embedding_matrix(self) -> Tensor:
        """The input embeddings. *Shape:* `(rows, hidden)`; rows may be more than the tokenizer has."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    @property
    def device(self) -> torch.device:
        """Where its weights lie."""
        return self.embedding_matrix.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of its weights and states."""
        return self.embedding_matrix.dtype

    @property
    def hidden_size(self) -> int:
        """Width of its states."""
        return int(self.config.hidden_size)

    @cached_property
    def window(self) -> int | None:
        """The shortest attention window of any layer, in tokens."""
        return sliding_window(self.config)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of weights, vocabulary, template and positions that ties every artefact to this backbone."""
        size = len(self.text.tokenizer)
        tokens = self.text.tokenizer.convert_ids_to_tokens(list(range(0, size, max(1, size // 4096))))
        decides = {
            "tokens": [size, *self.text.start_ids, *tokens],
            "template": self.text.tokenizer.chat_template,
            "rope": getattr(self.config, "rope_parameters", None),
            "window": self.window,
        }
        named = json.dumps(decides, sort_keys=True, default=str)
        return hash_tensors([*self.model.named_parameters(), (named, torch.empty(0))])

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, from the model's own config. The first is the one that answers are trained with."""
        found = self.model.generation_config.eos_token_id if self.model.generation_config else None
        found = found if found is not None else self.config.eos_token_id
        found = found if found is not None else self.text.tokenizer.eos_token_id
        if found is None:
            raise SettingError(f"{self.name} names no end token in its config, generation config or tokenizer")
        ids = [int(i) for i in found] if isinstance(found, list | tuple) else [int(found)]
        turn = self._turn_end()
        return tuple(dict.fromkeys(([turn] if turn in ids else []) + ids))

    @cached_property
    def line_ids(self) -> tuple[int, ...]:
        """Ids of all tokens that hold a line break."""
        breaks = ("\n", "Ċ", "<0x0A>")  # as characters, in byte-level BPE, and as a byte fallback
        vocabulary = self.text.tokenizer.get_vocab().items()
        return tuple(sorted(i for token, i in vocabulary if any(b in token for b in breaks)))

    def embed(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time hidden"]:
        """Look up input embeddings, in the space that `inputs_embeds` lives in (Gemma scales them by √hidden)."""
        return self.model.get_input_embeddings()(ids)  # type: ignore[no-any-return]

    def run(
        self,
        embeds: Float[Tensor, "batch time hidden"],
        mask: Int[Tensor, "batch total"] | None,
        positions: Int[Tensor, "batch time"],
        cache: DynamicCache | None = None,
        *,
        both_ways: bool = False,
        layer: int | None = None,
    ) -> Float[Tensor, "batch time hidden"]:
        """Run the body, without the vocabulary head: last layer, after the final norm.

        Args:
            embeds: Input vectors.
            mask: 1 for tokens that may be seen, for what the cache holds and for `embeds`; `None` sees all.
            positions: Position of each input; transformers' own default is wrong behind a padded cache.
            cache: Keys and values of what stands before; extended in place.
            both_ways: Let each token see what stands behind it too: transformers' own switch, for this pass only.
            layer: Return the states behind so many layers instead.
        """
        arguments: dict[str, Any] = {self._cache_argument: cache} if cache is not None else {}
        if both_ways:
            arguments["is_causal"] = False
        with eagerly(self.compiled):
            output = self.body(
                inputs_embeds=embeds.to(self.dtype),
                attention_mask=mask,
                position_ids=positions,
                use_cache=cache is not None,
                output_hidden_states=layer is not None,
                **arguments,
            )
        return _states(output, layer)

    def new_cache(self) -> DynamicCache:
        """Return an empty key/value cache, with sliding layers where the model has them."""
        return DynamicCache(config=self.config)

    @property
    def packs(self) -> bool:
        """Whether rows can run end to end: a family that is known to be causal, on torch's own attention."""
        return self.family.causal_prefix and can_pack(self.model)

    def run_packed(
        self, embeds: Float[Tensor, "tokens hidden"], packing: Packing, layer: int | None = None
    ) -> Float[Tensor, "tokens hidden"]:
        """Run the body on packed rows: last layer, after the final norm, or behind so many layers."""
        with packing.active(), eagerly(self.compiled and torch.is_grad_enabled()):
            output = self.body(
                inputs_embeds=embeds[None].to(self.dtype),
                attention_mask=torch.zeros(1, 1, 1, 1, device=self.device),  # four dimensions: transformers makes none
                position_ids=packing.positions,
                use_cache=False,
                output_hidden_states=layer is not None,
            )
        return _states(output, layer)[0]

    def kept(self, shared: tuple[int, ...]) -> Kept | None:
        """Return the keys and values of a prefix, which runs once; none for no prefix."""
        if not shared:
            return None
        key = (shared, self.device, self.dtype)  # the model may have been moved
        if key not in self._shared:
            with torch.inference_mode(mode=False), torch.no_grad():
                packing = Packing([len(shared)], self.device, keep=True)
                self.run_packed(self.embed(torch.tensor([shared], device=self.device))[0], packing)
            self._shared[key] = cast("Kept", packing.kept)
            while len(self._shared) > 4:
                self._shared.popitem(last=False)
        self._shared.move_to_end(key)
        return self._shared[key]

    def shared_cache(self, shared: tuple[int, ...], batch: int) -> DynamicCache:
        """Return a fresh cache that holds a common prefix for each row of a batch."""
        cache, kept = self.new_cache(), cast("Kept", self.kept(shared))
        for layer in sorted(kept.layers):
            keys, values = (part.transpose(0, 1).expand(batch, -1, -1, -1) for part in kept.layers[layer])
            cache.update(keys, values, layer)
        return cache

    def logits(self, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows vocabulary"]:
        """Apply the vocabulary head, with the scaling and the soft cap of the family, in float32."""
        return self.head.logits(states)

    @cached_property
    def head(self) -> VocabularyHead:
        """The frozen vocabulary head as plain tensors and numbers.

        Raises:
            SettingError: The family is not in our table and changes its logits in a way we do not know.
        """
        layer = self.model.get_output_embeddings()
        scale = 1.0
        if self.family.logit_scale:
            scale *= float(getattr(self.config, self.family.logit_scale))
        if self.family.logit_divisor:
            scale /= float(getattr(self.config, self.family.logit_divisor))
        softcap = getattr(self.config, "final_logit_softcapping", None)
        head = VocabularyHead(layer.weight, getattr(layer, "bias", None), scale, softcap)
        if self.family == UNKNOWN:
            self._check_head(head)
        return head

    @torch.no_grad()
    def _check_head(self, head: VocabularyHead) -> None:
        ids = torch.tensor([[0, 1]], device=self.device)
        expected = self.model(input_ids=ids).logits[0].float()
        found = head.logits(self.body(input_ids=ids).last_hidden_state[0])
        if not torch.allclose(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())):
            raise SettingError(
                f"models of type {self.config.model_type} change their logits in a way that is not in the table of "
                "families: add a row for it to afterword/backbone/families.py"
            )

    def _turn_end(self) -> int | None:
        """The id that the chat template writes behind an assistant's turn."""
        if not self.text.tokenizer.chat_template:
            return None
        answer = "\u2402answer\u2403"
        ids = self.text.trusted(render_chat(self.text, None, answer)[1].partition(answer)[2])
        return ids[0] if ids else None


def _states(output: Any, layer: int | None) -> Tensor:
    return output.last_hidden_state if layer is None else output.hidden_states[layer]  # type: ignore[no-any-return]


def _cache_argument(body: nn.Module) -> str:
    # `past_key_values` became `cache` in transformers 5.24; both are in use.
    return "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
