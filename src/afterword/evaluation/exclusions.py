"""Documents that must not be ranked for a query.

BRIGHT takes them out of the ranking before it is scored: the problem itself in another wording, or documents that would
be false negatives (arXiv 2407.12883, appendix). mteb's tasks carry them where their data set does; where it does not,
they are fetched from the authors' own data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mteb.abstasks import AbsTask, AbsTaskRetrieval

from afterword.errors import MismatchError
from afterword.evaluation.local_tasks import ranked_without

SOURCE = "xlangai/BRIGHT"
DOMAINS = {
    "BrightPonyRetrieval": "pony",
    "BrightLeetcodeRetrieval": "leetcode",
    "BrightAopsRetrieval": "aops",
    "BrightTheoremQATheoremsRetrieval": "theoremqa_theorems",
    "BrightTheoremQAQuestionsRetrieval": "theoremqa_questions",
}
"""Domains with excluded documents, by mteb's task."""

Rows = Iterable[Mapping[str, Any]]


def honour_exclusions(task: AbsTask, fetch: Callable[[str], Rows] | None = None) -> int:
    """Keep excluded documents out of the ranking of a loaded task.

    Args:
        task: Any task; only those of `DOMAINS` that do not carry their exclusions already are changed.
        fetch: Returns the rows of a domain, with `id` and `excluded_ids`; by default from the hub.

    Returns:
        The number of queries that have excluded documents.

    Raises:
        MismatchError: The ids of the two data sets do not belong together, so that nothing would be excluded.
    """
    domain = DOMAINS.get(task.metadata.name)
    if domain is None or not isinstance(task, AbsTaskRetrieval):
        return 0
    changed = 0
    for splits in task.dataset.values():
        for split in splits.values():
            if split["top_ranked"] is None:
                excluded = _excluded((fetch or _from_hub)(domain))
                queries, corpus = list(split["queries"]["id"]), list(split["corpus"]["id"])
                known = set(corpus)
                meant = {query: ids & known for query, ids in excluded.items() if query in set(queries)}
                if excluded and not any(meant.values()):
                    raise MismatchError(
                        f"{task.metadata.name}: no excluded document of {SOURCE} is in the corpus of mteb's data set"
                    )
                split["top_ranked"] = ranked_without(corpus, queries, meant)
                changed += sum(bool(ids) for ids in meant.values())
    return changed


def _excluded(rows: Rows) -> dict[str, set[str]]:
    found = {str(row["id"]): {str(one) for one in row["excluded_ids"]} - {"N/A"} for row in rows}
    return {query: ids for query, ids in found.items() if ids}


def _from_hub(domain: str) -> Rows:
    from datasets import load_dataset

    rows: Rows = load_dataset(SOURCE, "examples", split=domain)
    return rows
