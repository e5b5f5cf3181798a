# Everything here needs python3, make and a package index; the rest is fetched into .tools and .venv*.
# `make help` lists the targets.

PYTHON  ?= python3
WORKERS ?= 4
ARGS    ?=
UV      := $(or $(shell command -v uv),.tools/bin/uv)
UV_TOOL := $(filter .tools/bin/uv,$(UV))

DEV     := .venv/bin/python
PYTEST  := $(DEV) -m pytest
PACKAGE := pyproject.toml src/stepwell/_version.py
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock"

# One Python for everything: the one that was asked for, never one that uv would download.
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode is kept, whatever the environment says: every process that the tests start would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
# The system's certificates, where it has any: behind a company's proxy only they know its authority.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS := 1
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test again browser-test pictures test-loops test-pythons flakes soak mutants bench compare requirements check lint types imports format wheel lock docs reference \
	architecture map ways clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- the two commands --------------------------------------------------------------------------------------------

demo: .venv-base/.ready ## watch a worker being killed and its work being finished (SQLite, base install)
	@.venv-base/bin/stepwell demo

test: .venv/.ready ## the whole suite on SQLite, Turso and Postgres, without the soak runs
	TMPDIR=$$(scripts/scratch.sh) $(PYTEST) -n $(WORKERS) -m "not soak" $(ARGS)

again: .venv/.ready ## the few tests that failed last, alone; names the flakes among them
	TMPDIR=$$(scripts/scratch.sh) $(DEV) scripts/again.py $(ARGS)

# ---- more proof --------------------------------------------------------------------------------------------------

browser-test: .venv/.ready ## the dashboard in a real Chromium, every page of it; docs/dashboard.md says how to get one
	TMPDIR=$$(scripts/scratch.sh) $(PYTEST) -n 2 -m browser tests/browser $(ARGS)

pictures: .venv/.ready ## write docs/img: each page of the dashboard, light and dark (ARGS="--png --to FOLDER" to look first)
	$(DEV) -m tests.browser.pictures $(ARGS)

test-loops: .venv/.ready ## the suite on uvloop, and on a loop where all comes late that may
	STEPWELL_TEST_LOOP=uvloop $(MAKE) test
	STEPWELL_TEST_LOOP=late $(MAKE) test

test-pythons: $(UV_TOOL) ## the suite on Python 3.12 and 3.13, where they are found
	@for version in 3.12 3.13; do \
		found=$$(scripts/find_python.sh $$version) || { echo "Python $$version: not found, not tested"; continue; }; \
		echo "Python $$version: $$found"; \
		$(MAKE) --no-print-directory .venv-$$version/.ready PYTHON="$$found" && \
		TMPDIR=$$(scripts/scratch.sh) .venv-$$version/bin/python -m pytest -n $(WORKERS) -m "not soak" $(ARGS) || exit 1; \
	done

flakes: .venv/.ready ## tests that race, again and again with every core taken (ARGS="--times 3 -k claim" for less)
	TMPDIR=$$(scripts/scratch.sh) $(DEV) -m tests.flakes $(ARGS)

soak: .venv/.ready ## the long runs; writes docs/proof.md
	$(DEV) -m tests.soak $(ARGS)

mutants: .venv/.ready ## break each rule on purpose and see its test go red; goes on after an interruption (ARGS="--part 1/4")
	$(DEV) -m tests.mutants $(ARGS)

bench: .venv/.ready $(UV_TOOL) ## raw SQL, stepwell and its peers; writes docs/benchmarks.md (ARGS="--quick" to try it)
	@$(DEV) -m bench --uv $(UV) $(ARGS)

compare: .venv/.ready ## this code beside a revision, or without a shortcut, in alternating rounds (ARGS=--help)
	@$(DEV) -m bench.compare $(ARGS)

requirements: .venv/.ready ## what is proved on which backend; rewrites the last column of docs/requirements.md
	@$(PYTEST) -q -p no:randomly --proved=write

# ---- checks ------------------------------------------------------------------------------------------------------

check: lint types imports ## lint, types and imports

lint: .venv/.ready ## ruff: rules and format
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.ready ## mypy, strict, over src, tests and scripts
	.venv/bin/mypy

imports: .venv/.ready ## import-linter: who may import whom
	.venv/bin/lint-imports

format: .venv/.ready ## let ruff fix and format
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

wheel: .venv/.ready ## build the wheel, install it into an empty environment, run the demo from it
	$(DEV) scripts/try_wheel.py --uv $(UV)

map: .venv/.ready ## the size of the code: modules, lines, the largest, those with one importer
	@$(DEV) -m tests.shape.map $(ARGS)

ways: .venv/.ready ## modules and functions that are passed on four ways through it (ARGS='--list "show a run"' for one)
	@$(DEV) -m tests.shape.ways $(ARGS)

reference: .venv/.ready ## write docs/reference.md from what the code says
	@$(DEV) scripts/reference.py

architecture: .venv/.ready ## write what docs/architecture.md takes from the code: the folders and the picture
	@$(DEV) -m tests.shape.architecture

docs: .venv-docs/.ready reference architecture ## build the pages into site/ (zensical is fetched for it; `make test` does not need it)
	.venv-docs/bin/python scripts/build_site.py --zensical .venv-docs/bin/zensical

# ---- environments ------------------------------------------------------------------------------------------------

lock: $(UV_TOOL) ## resolve the versions again (ARGS=--upgrade for newer ones)
	$(COMPILE) $(ARGS) pyproject.toml --output-file requirements/base.txt
	$(COMPILE) $(ARGS) pyproject.toml --all-extras --group dev --output-file requirements/dev.txt
	$(COMPILE) $(ARGS) --group tools --output-file requirements/tools.txt
	$(COMPILE) $(ARGS) --group docs --output-file requirements/docs.txt

clean: ## remove everything that was built or fetched
	rm -rf .tools .venv .venv-* dist site .cache .coverage .coverage.* .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find src tests scripts bench -name __pycache__ -type d -prune -exec rm -rf {} +

.tools/bin/uv: requirements/tools.txt
	@echo "fetching uv into .tools (once)"
	@rm -rf .tools
	@$(PYTHON) -m venv .tools
	@.tools/bin/pip install --quiet --require-hashes --requirement requirements/tools.txt
	@touch $@

# $(call environment,FOLDER,LOCK): an environment with exactly what LOCK names, and this project in place.
define environment
	@echo "installing what $(2) names into $(1) (once)"
	@[ -x $(1)/bin/python ] || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(1)
	@$(UV) pip sync --quiet --python $(1)/bin/python --require-hashes $(2)
	@$(UV) pip install --quiet --python $(1)/bin/python --no-deps --build-constraints requirements/dev.txt --editable .
	@touch $(1)/.ready
endef

.venv/.ready .venv-3.12/.ready .venv-3.13/.ready: requirements/dev.txt $(PACKAGE) | $(UV_TOOL)
	$(call environment,$(@D),requirements/dev.txt)

.venv-base/.ready: requirements/base.txt $(PACKAGE) | $(UV_TOOL)
	$(call environment,$(@D),requirements/base.txt)

.venv-docs/.ready: requirements/docs.txt | $(UV_TOOL)
	@[ -x $(@D)/bin/python ] || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(@D)
	$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes requirements/docs.txt
	touch $@
