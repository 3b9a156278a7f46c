"""`afterword demo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from afterword.cli.bars import Bars
from afterword.cli.flags import parse_flags, quiet_libraries


@dataclass(frozen=True)
class Demo:
    """Turn a small real LLM into an answer-space embedder and show what it learned. Run again, it reuses what is there.

    Example: afterword demo --out afterword-demo
    """

    out: Path = Path("afterword-demo")
    """Folder for everything it makes."""
    backbone: str = "demo"
    """Frozen LLM: a hub name, a folder, or a packaged one (demo, demo-qwen)."""
    teacher: str = "demo"
    """Teacher: a SentenceTransformer, demo (all-MiniLM-L6-v2), or llm (the backbone itself)."""
    limit: int | None = None
    """Use only so many of the demo's queries."""
    json: bool = False
    """Print the report as JSON."""

    def run(self) -> None:
        """Run and show."""
        quiet_libraries()
        from afterword.corpus.manifest import write_whole
        from afterword.flow.demo import run_demo
        from afterword.flow.page import render_page
        from afterword.flow.text_report import render_text

        given = {"backbone": self.backbone, "teacher": self.teacher, "limit": self.limit}
        report = run_demo(self.out, Bars(), {key: value for key, value in given.items() if value is not None})
        page = self.out / "report.html"
        write_whole(page, render_page(report))
        print(report.to_json() if self.json else f"{render_text(report)}\nThe same as a page: {page}")


def parse(arguments: Sequence[str]) -> Demo:
    """Read the flags."""
    return parse_flags(Demo, "demo", arguments)
