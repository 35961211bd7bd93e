# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-serving check docs format

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	if $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	then command -v $$name; break; fi; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal
RUN := runs/demo
EXPORT := export/models/demo
# From the test split: no training text has them.
SENTENCES := "Sometimes Lukas has packed a heavy shirt." \
	"Today his cat can return in front of these windows." \
	"Although he dreams of the king, I have closed the window."

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/.installed: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "tfnmt needs Python 3.11, 3.12 or 3.13; none was found" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: .venv/.installed ## make .venv and install into it

demo: .venv/.installed ## train on the toy corpus, score, export, translate
	@$(BIN)/python -m tfnmt.train --dataset=toy --run_dir=$(RUN)
	@echo && echo "Held-out sentences of the synthetic toy corpus score:"
	@$(BIN)/python -m tfnmt.evaluate --model=$(RUN) --split=test
	@rm -rf $(EXPORT)
	@$(BIN)/python -m tfnmt.export --model=$(RUN) --output=$(EXPORT)
	@echo && echo "The exported model, loaded in a fresh process, makes of the sentences" && echo
	@printf '    %s\n' $(SENTENCES) && echo && echo "these:" && echo
	@$(BIN)/python -m tfnmt.translate --model=$(EXPORT) $(SENTENCES) | sed 's/^/    /'
	@echo && echo "Next:"
	@echo "    $(BIN)/python -m tfnmt.translate --model=$(EXPORT) \"She knows that the dog sleeps.\""
	@echo "    $(BIN)/python -m app --model=$(EXPORT)"
	@echo "    $(BIN)/python -m tfnmt.train --train=my.en,my.de"
	@echo "    $(BIN)/tensorboard --logdir=$(RUN)/logs"

test: .venv/.installed ## run the tests
	$(PYTEST) -m "not slow"

test-all: .venv/.installed ## run the tests, the slow ones too
	$(PYTEST)

test-serving: .venv/.installed .venv-serving/.installed ## an export under the TensorFlow of TensorFlow Serving
	TFNMT_SERVING_PYTHON=.venv-serving/bin/python $(BIN)/python -m pytest tests/system/test_server_versions.py

.venv-serving/.installed: Makefile
	$(PYTHON) -m venv .venv-serving
	.venv-serving/bin/python -m pip install --quiet tensorflow-cpu==2.20.0 tensorflow-text==2.20.1
	@touch $@

check: .venv/.installed ## formatting, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.installed ## the reference from the code, and the site in site/
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict

format: .venv/.installed ## format the code and mend what lint can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
