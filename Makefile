# Run `make help` for a list of targets.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-serving test-containers mutation fuzz soak check docs lock format

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	if $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
	then command -v $$name; break; fi; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal
MODEL := tatoeba-en-de-fr-es
RUN := runs/demo
EXPORT := export/models/demo
SOAK_RUN := runs/soak
FUZZ_SECONDS := 60
EXTRAS := train app ctranslate2 documents detect cluster
# Sentences of the toy test set. None is in the training data.
SENTENCES := "Sometimes Lukas has packed a heavy shirt." \
	"Today his cat can return in front of these windows." \
	"Although he dreams of the king, I have closed the window."

help: ## list all targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 17

.venv/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "python3: not found in version 3.11, 3.12 or 3.13; install one of them" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

install: .venv/.installed ## create .venv and install tfnmt with its development tools

demo: .venv/.installed ## translate, then train on the toy corpus, evaluate, export and translate
	@echo "Translated by the model that comes with tfnmt:" && echo
	@for target in de fr es; do $(BIN)/python -m tfnmt.translate --model=$(MODEL) \
		--source=en --target=$$target "Where can I buy a ticket? The train leaves in ten minutes." \
		| sed 's/^/    /' || exit 1; done
	@echo && echo "A new model, trained on a synthetic toy corpus:"
	@$(BIN)/python -m tfnmt.train --dataset=toy --run_dir=$(RUN)
	@echo && echo "Evaluation on the test set of the synthetic toy corpus:"
	@$(BIN)/python -m tfnmt.evaluate --model=$(RUN) --split=test
	@rm -rf $(EXPORT)
	@$(BIN)/python -m tfnmt.export --model=$(RUN) --output=$(EXPORT)
	@echo && echo "Sentences of the test set:" && echo
	@printf '    %s\n' $(SENTENCES) && echo
	@echo "Translated by the exported model in a new process:" && echo
	@$(BIN)/python -m tfnmt.translate --model=$(EXPORT) $(SENTENCES) | sed 's/^/    /'
	@echo && echo "Next:"
	@echo "    $(BIN)/python -m tfnmt.translate --model=$(MODEL) --target=fr \"Where can I buy a ticket?\""
	@echo "    $(BIN)/python -m tfnmt.translate --model=$(EXPORT) \"She knows that the dog sleeps.\""
	@echo "    $(BIN)/python -m app --model=$(EXPORT)"
	@echo "    $(BIN)/python -m tfnmt.train --train=my.en,my.de --minutes=10"
	@echo "    $(BIN)/tensorboard --logdir=$(RUN)/logs"

test: .venv/.installed ## run the fast tests
	$(PYTEST) -m "not slow"

test-all: .venv/.installed ## run all tests, including the slow ones
	$(PYTEST)

test-serving: .venv/.installed .venv-serving/.installed ## test an export with the TensorFlow version of TensorFlow Serving
	TFNMT_SERVING_PYTHON=.venv-serving/bin/python $(BIN)/python -m pytest tests/system/test_server_versions.py

test-containers: .venv/.installed .venv-containers/.installed ## build the images with podman, test them and compose.yaml
	PATH="$(CURDIR)/.venv-containers/bin:$$PATH" TFNMT_CONTAINERS=1 \
		$(BIN)/python -m pytest -rs --durations=0 tests/containers

mutation: .venv/.installed ## run the tests against injected bugs: each bug must make tests fail
	$(PYTEST) -m slow tests/mutation

fuzz: .venv/.installed ## try random input files and flags, FUZZ_SECONDS seconds per test
	TFNMT_FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTEST) tests/fuzz

soak: .venv/.installed ## run shortened soak tests: kill and resume training and translation, exactness
	$(BIN)/python -m tests.soak.kill_training --kills=4
	$(BIN)/python -m tfnmt.train --dataset=toy --run_dir=$(SOAK_RUN) --set=training.max_steps=500
	$(BIN)/python -m tests.soak.kill_translation --model=$(SOAK_RUN) --lines=30000 --kills=2 --beam_size=0
	$(BIN)/python -m tests.soak.exactness --model=$(SOAK_RUN)
	$(BIN)/python -m tests.soak.long_life train --dataset=toy --minutes=3 --kill_seconds=40
	$(BIN)/python -m tests.soak.long_life translate --model=$(SOAK_RUN) --lines=10000 --minutes=3 --kill_seconds=25
	@echo && echo "Full size: the same commands with their default flags, and with your own --model and --input."
	@echo "Not run, because it needs a server: $(BIN)/python -m tests.soak.serving --url=URL --hostile=10000"

.venv-serving/.installed: Makefile
	$(PYTHON) -m venv .venv-serving
	.venv-serving/bin/python -m pip install --quiet tensorflow-cpu==2.20.0 tensorflow-text==2.20.1
	@touch $@

.venv-containers/.installed: Makefile
	$(PYTHON) -m venv .venv-containers
	.venv-containers/bin/python -m pip install --quiet podman-compose==1.6.0
	@touch $@

check: .venv/.installed ## check formatting, lint, types and imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.installed ## generate the reference pages and build the site in site/
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict

lock: .venv/.installed ## pin all packages with their checksums in requirements.lock
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra=%) --universal --python-version=3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --custom-compile-command="make lock" \
		--upgrade --quiet --output-file=requirements.lock

format: .venv/.installed ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
