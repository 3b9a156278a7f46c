"""A model of Afterword in mteb's own `evaluate`: on its tasks by name, and on files of your own as tasks of mteb.

    python examples/mteb_tasks.py MODEL Banking77Classification     # needs the hub, for the data
    python examples/mteb_tasks.py MODEL FOLDER                      # files, as `afterword evaluate --data` reads them

`afterword evaluate` does this and more (several encoders, differences with intervals, a report); this is for whoever
has a program around mteb already.
"""

import sys
from pathlib import Path

import mteb

from afterword.evaluation.local import find_sets
from afterword.evaluation.local_data import Sampling
from afterword.evaluation.local_tasks import local_task
from afterword.integrations.sentence_transformers import load

model, what = load(sys.argv[1]), sys.argv[2]
if Path(what).is_dir():
    sets, unread = find_sets(what)
    for name, why in unread.items():
        print(f"{name} is left out: {why}")
    tasks = [local_task(found, Sampling(most=200, seed=42)) for found in sets]
else:
    tasks = mteb.get_tasks(tasks=[what])
for result in mteb.evaluate(model, tasks, cache=None, encode_kwargs={"batch_size": 32}).task_results:
    print(f"{result.task_name}  {result.get_score():.4f}")
