"""The packaged LLM itself: does what holds for tiny random models hold for real weights?"""

import numpy as np
import pytest
import torch

from afterword import (
    Afterword,
    BackboneSettings,
    ModelSettings,
    ResponseSettings,
    TrainSettings,
    embed_targets,
    generate_responses,
    load_backbone,
    open_responses,
    open_targets,
    open_teacher,
    train,
)
from afterword.backbone.passes import frozen_prefix_pass
from afterword.corpus.records import Query, text_id

pytestmark = pytest.mark.llm

QUESTIONS = ["What is the capital of France?", "Which planet is closest to the sun?", "is the moon bigger than earth"]


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(BackboneSettings("demo", device="cpu", dtype="float32"))


@pytest.fixture(scope="module")
def responses(backbone, tmp_path_factory):
    out = tmp_path_factory.mktemp("real") / "responses"
    texts = [*QUESTIONS, *(f"What is {a} and {b}?" for a in ("salt", "rain", "iron") for b in ("wood", "gold"))]
    queries = [Query(text_id(text), text) for text in texts]
    generate_responses(backbone, queries, out, ResponseSettings(max_new_tokens=16))
    return open_responses(out, backbone)


def test_it_answers_in_words(responses):
    answers = {response.query: response.text for response in responses}
    assert "Paris" in answers[QUESTIONS[0]]
    assert all(text and "Question:" not in text for text in answers.values())


@pytest.mark.parametrize("placement", ["query", "answer"])
def test_frozen_prefix_gradient_equals_the_plain_pass(backbone, placement):
    model = Afterword.from_backbone(backbone, settings=ModelSettings(placement=placement, n_compression=4))
    rows = model.inputs.rows(QUESTIONS[:2])
    tail = model.parts.tokens.detach().clone().requires_grad_()
    frozen_prefix_pass(backbone, model.inputs.pad(rows), tail).square().sum().backward()
    expected = torch.zeros_like(tail)
    for row in rows:
        plain = tail.detach().clone().requires_grad_()
        ids = torch.tensor([[*model.inputs.frame.before, *row]])
        embeds = torch.cat([backbone.embed(ids)[0], plain])[None]
        backbone.model.model(inputs_embeds=embeds).last_hidden_state[0, -4:].square().sum().backward()
        expected += plain.grad
    assert torch.allclose(tail.grad, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_training_changes_tokens_and_heads_only(backbone, responses, tmp_path):
    before = {name: tensor.clone() for name, tensor in backbone.model.state_dict().items()}
    embed_targets(open_teacher("demo"), responses, tmp_path / "targets")
    settings = TrainSettings(validation=2, batch_size=4, epochs=1.0, recon_share=0.5)
    shape = ModelSettings(placement="answer", n_compression=4)
    result = train(backbone, responses, open_targets(tmp_path / "targets"), tmp_path / "run", shape, settings)
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.model.state_dict().items())
    loaded = Afterword.from_pretrained(str(tmp_path / "run" / "model"), backbone=backbone)
    assert np.array_equal(loaded.encode(QUESTIONS), result.model.encode(QUESTIONS))
    alone = np.stack([loaded.encode(question) for question in QUESTIONS])
    assert np.allclose(alone, loaded.encode(QUESTIONS), atol=1e-5)
    assert len(loaded.decode(QUESTIONS, max_new_tokens=4)) == len(QUESTIONS)
