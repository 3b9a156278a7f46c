"""Heads in closed form, against scikit-learn and against leaving each row out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge as SklearnRidge

from afterword.backbone.backbone import Backbone
from afterword.model.model import Afterword
from afterword.training.examples import make_examples
from afterword.training.gist import gists
from afterword.training.warm_start import KEPT, STRENGTHS, fit_alignment, fit_heads, fit_ridge
from tests.teachers import vowels
from tests.training.world import SHAPE, Reference, corpus, counted_targets, quick
from tests.world import make_backbone, random_vectors

SHAPES = [(30, 8), (12, 20), (9, 9)]


def data(rows: int, features: int, noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = random_vectors(rows, features, seed=1, dtype=torch.float64).numpy() * np.linspace(0.1, 5, features) + 3
    weight = random_vectors(features, 3, seed=2, dtype=torch.float64).numpy()
    return x, x @ weight + noise * random_vectors(rows, 3, seed=3, dtype=torch.float64).numpy() - 7


def penalty(x: NDArray[np.float64], strength: float) -> float:
    """Strengths are relative to the mean square of the singular values of the centred features."""
    return strength * float(np.mean(np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2))


def left_out_error(x: NDArray[np.float64], y: NDArray[np.float64], alpha: float) -> float:
    """Fit without each row in turn and predict it."""
    errors = []
    for row in range(len(x)):
        rest = np.arange(len(x)) != row
        fit = SklearnRidge(alpha=alpha, solver="svd").fit(x[rest], y[rest])
        errors.append(fit.predict(x[row : row + 1])[0] - y[row])
    return float(np.mean(np.square(errors)))


@pytest.mark.parametrize(("rows", "features"), SHAPES)
@pytest.mark.parametrize("noise", [0.01, 3.0, 100.0])
def test_the_fit_is_scikit_learns_and_its_error_is_that_of_leaving_one_out(
    rows: int, features: int, noise: float
) -> None:
    x, y = data(rows, features, noise)
    ridge = fit_ridge(torch.from_numpy(x), torch.from_numpy(y))
    wanted = SklearnRidge(alpha=penalty(x, ridge.strength), solver="svd").fit(x, y)
    np.testing.assert_allclose(ridge.weight.numpy(), wanted.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ridge.bias.numpy(), wanted.intercept_, rtol=1e-6, atol=1e-9)
    errors = {strength: left_out_error(x, y, penalty(x, strength)) for strength in STRENGTHS}
    assert ridge.error == pytest.approx(errors[ridge.strength], rel=1e-5)
    assert errors[ridge.strength] == pytest.approx(min(errors.values()), rel=1e-5)


def test_more_noise_asks_for_a_stronger_penalty() -> None:
    strengths = [fit_ridge(*map(torch.from_numpy, data(30, 8, noise))).strength for noise in (0.01, 3.0, 1000.0)]
    assert strengths == sorted(set(strengths))


@pytest.mark.parametrize("rows", [1, 2])
def test_hardly_any_rows_give_a_finite_fit(rows: int) -> None:
    x, y = (torch.from_numpy(array[:rows]) for array in data(5, 4, 1.0))
    ridge = fit_ridge(x, y)
    assert torch.isfinite(ridge.weight).all()
    torch.testing.assert_close(x.mean(dim=0) @ ridge.weight.T + ridge.bias, y.mean(dim=0))


def test_features_that_never_move_leave_the_mean_of_the_targets() -> None:
    y = torch.from_numpy(data(6, 4, 1.0)[1])
    ridge = fit_ridge(torch.full((6, 4), 2.0, dtype=torch.float64), y)
    torch.testing.assert_close(2.0 * ridge.weight.sum(dim=1) + ridge.bias, y.mean(dim=0))


def mean_prompts(backbone: Backbone, model: Afterword, queries: list[str]) -> NDArray[np.float64]:
    reference = Reference.of(backbone.model, dict(model.parts.named_parameters()))
    with torch.no_grad():
        return np.stack([reference.soft_prompt(query).mean(dim=0).numpy() for query in queries])


@pytest.mark.parametrize("kind", ["llama", "gemma3_text-short"])
def test_embeddings_of_the_started_model_are_the_ridge_predictions(kind: str, tmp_path: Path) -> None:
    backbone, responses = make_backbone(kind), corpus()
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    examples, _ = make_examples(model, responses, counted_targets(responses, tmp_path), 24)
    tokens, recon = model.parts.tokens.clone(), model.parts.recon.weight.clone()
    ridge = fit_alignment(model, examples, quick(tokens_per_pass=150))

    x, y = mean_prompts(backbone, model, [r.query for r in responses]), vowels([r.text for r in responses])
    fit = SklearnRidge(alpha=penalty(x, ridge.strength), solver="svd").fit(x, y.astype(np.float64))
    queries = ["something else?", "and an unseen one"]
    np.testing.assert_allclose(model.encode(queries), fit.predict(mean_prompts(backbone, model, queries)), atol=2e-4)
    assert torch.equal(model.parts.tokens, tokens)
    assert torch.equal(model.parts.recon.weight, recon)


def test_a_bound_on_the_samples_takes_some_by_seed(tmp_path: Path, backbone: Backbone) -> None:
    responses = corpus()
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    examples, _ = make_examples(model, responses, counted_targets(responses, tmp_path), 24)
    biases = {}
    for name, settings in {
        "six": quick(warm_start_samples=6),
        "other six": quick(warm_start_samples=6, seed=1),
        "all": quick(),
        "all again": quick(seed=1),
    }.items():
        fit_alignment(model, examples, settings)
        biases[name] = model.parts.align.bias.tolist()
    assert biases["all"] == biases["all again"]
    assert len({tuple(bias) for bias in biases.values()}) == 3


def test_a_gist_is_the_mean_of_embedded_tokens_by_rarity() -> None:
    backbone = make_backbone("gemma3_text")  # its embeddings are scaled inside the layer
    e = backbone.embed(torch.arange(60)[None])[0].float()
    rare, common = np.log(4 / 2), np.log(4 / 3)
    found = gists(backbone, [[40, 41, 1], [41, 41, 1], [50, 1]])
    wanted = torch.stack(
        [
            (rare * e[40] + common * e[41]) / (rare + common),
            e[41],
            e[50],
        ]
    )
    torch.testing.assert_close(found, wanted)


def test_responses_that_are_all_the_same_have_their_plain_mean_as_gist(backbone: Backbone) -> None:
    e = backbone.embed(torch.tensor([[40, 41]]))[0].float()
    torch.testing.assert_close(gists(backbone, [[40, 41], [40, 41]]), e.mean(dim=0).expand(2, -1))


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text-short"])
def test_the_started_reconstruction_head_is_the_ridge_of_gists_at_the_length_of_tokens(
    kind: str, tmp_path: Path
) -> None:
    backbone, responses = make_backbone(kind), corpus()
    model = Afterword.from_backbone(backbone, settings=SHAPE, embedding_dimension=5)
    examples, _ = make_examples(model, responses, counted_targets(responses, tmp_path), 24)
    plain = KEPT * model.parts.recon.weight.detach().numpy()
    reference = Reference.of(backbone.model, dict(model.parts.named_parameters()))
    with torch.no_grad():  # the identity, unscaled: states
        scale = model.parts.recon.weight[0, 0].item()
        states = np.stack([reference.soft_prompt(response.query).numpy() / scale for response in responses])
    recon, align = fit_heads(model, examples, quick(tokens_per_pass=150))

    x, y = states.mean(axis=1), gists(backbone, examples.responses).double().numpy()
    ridge = SklearnRidge(alpha=penalty(x, recon.strength), solver="svd").fit(x, y)
    predicted = ridge.predict(states.reshape(-1, states.shape[-1]))
    tokens = backbone.embed(torch.tensor([[t for r in examples.responses for t in r]]))[0].double().numpy()
    longer = np.sqrt(np.mean(np.sum(tokens**2, axis=1)) / np.mean(np.sum(predicted**2, axis=1)))
    np.testing.assert_allclose(model.parts.recon.weight.detach().numpy() - plain, longer * ridge.coef_, atol=2e-4)
    np.testing.assert_allclose(model.parts.recon.bias.detach().numpy(), longer * ridge.intercept_, atol=2e-4)
    assert align.strength in STRENGTHS
    prompts, targets = mean_prompts(backbone, model, [r.query for r in responses]), vowels([r.text for r in responses])
    fit = SklearnRidge(alpha=penalty(prompts, align.strength), solver="svd").fit(prompts, targets.astype(np.float64))
    np.testing.assert_allclose(model.encode([r.query for r in responses]), fit.predict(prompts), atol=2e-3)
