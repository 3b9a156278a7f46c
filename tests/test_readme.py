"""The README's snippets, run in order on the packaged LLM."""

import json
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
QUERIES = [
    "Why is the sky blue?",
    "How do bees make honey?",
    "Name a large ocean.",
    "what is the capital of italy",
    "Write a sentence about rain.",
    "my card was declined",
    "Who painted the Mona Lisa?",
    "Is coffee bad for you?",
    "Give me a synonym for happy.",
    "A dog runs across the field.",
]


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_five_snippets():
    assert len(snippets()) == 5


@pytest.mark.llm
def test_snippets_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("queries.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in QUERIES), encoding="utf-8")
    offline = {
        "Qwen/Qwen3-0.6B": "demo",
        "sentence-transformers/all-MiniLM-L6-v2": "demo",
        "max_new_tokens=128": "max_new_tokens=8",
        '"run/training", ': '"run/training", settings=TrainSettings(validation=2, batch_size=4), model_settings=',
        '"run/own-training")': '"run/own-training", settings=TrainSettings(validation=2, batch_size=4))',
    }
    names: dict[str, object] = {}
    for code in snippets():
        for there, here in offline.items():
            code = code.replace(there, here)
        exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert "(2, 384) tensor" in "\n".join(printed)
    assert "torch.Size([1, 10, 640]) torch.Size([1, 384])" in printed
    assert "True" in printed
    assert "(384,) (640,)" in printed
