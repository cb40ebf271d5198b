# `make run` and `make test` need a Python from 3.11.4 to 3.12 and nothing else; `make help` lists the rest.
# On Linux PyPI's torch brings some GB of CUDA; TORCH_INDEX=https://download.pytorch.org/whl/cpu avoids that.

# The first interpreter on the PATH that really runs (a shim of pyenv may only look like one); PYTHON=... overrides.
PYTHON ?= $(shell IFS=:; for name in python3.11 python3.12 python3; do for dir in $$PATH; do \
	"$$dir/$$name" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11, 4) <= sys.version_info < (3, 13))' \
	2>/dev/null && echo "$$dir/$$name" && exit; done; done)

BIN := .venv/bin
PIP = $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check
PACKAGES := src tests $(wildcard benchmarks notebooks)

export DO_NOT_TRACK := 1

.DEFAULT_GOAL := help
.PHONY: help install run test test-all changed lint unit rare bench stale docs viz lock clean audit-packages
.DELETE_ON_ERROR:

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

run: .venv/.installed ## install what is missing, run the whole pipeline on the built-in collection, print what it brought
	@echo "==> running the pipeline"
	@$(BIN)/kedro run
	@$(BIN)/kedro anmi results

test: lint unit ## install what is missing, then lint, types and every test that is not rare: minutes

test-all: test rare bench ## that, the rare tests and the speed of mining: before a release, and every night

lint: .venv/.installed-test
	@echo "==> ruff"
	@$(BIN)/ruff check --quiet $(PACKAGES)
	@$(BIN)/ruff format --quiet --check $(PACKAGES)
	@echo "==> mypy"
	@$(BIN)/mypy --no-error-summary src

# Two workers with a thread each. Files stay whole, since most share what their first test made (loadgroup would say
# that of runs as well, but does nothing with pytest 9.2: pytest-xdist issue 1386); tests/conftest.py has the order.
WORKERS ?= 2
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

unit: .venv/.installed-test
	@echo "==> pytest"
	@$(PYTEST) -m "not rare"

rare: .venv/.installed-test
	@echo "==> pytest, the rare tests"
	@$(PYTEST) -m rare

# Where a pattern matches the path of a changed file, CI runs the rare tests of these files; of `tests`, all of them.
define RARE_TESTS
^(Makefile|pyproject.toml|requirements.*lock|tests/([a-z0-9]+/)?conftest.py|tests/commands.py|src/anmi/[^/]*.py)$$ tests
^src/anmi/(engine|store|candidates|retrieval|judging|selection|pipelines)/ tests/engine tests/e2e/test_engines.py
^src/anmi/(retrieval|judging|selection|training|evaluation|pipelines)/ tests/e2e/test_figures.py tests/e2e/test_many_positives.py tests/e2e/test_audit.py
^src/anmi/(retrieval|judging|selection|training)/|^conf/base/recipes tests/e2e/test_published_code.py
^(src/anmi/(selection|training)/|conf/base/recipes) tests/e2e/test_recipes.py tests/e2e/test_hardening.py tests/e2e/test_no_labels.py
^src/anmi/(training|store|datasets|hooks|pipelines)/ tests/e2e/test_interruption.py tests/training tests/cli
^src/anmi/(datasets|hooks|pipelines/retrain)/|^conf/prod/|^docs/production tests/hooks tests/pipelines/retrain tests/e2e/test_production.py tests/e2e/test_retrain.py tests/e2e/test_server.py
^src/anmi/cli/ablate tests/e2e/test_ablate.py
^(src/anmi|benchmarks)/ tests/test_benchmarks.py
^(src/anmi/(cli|corpus|hooks)/|.*/params.py$$|conf/) tests/e2e/test_bad_input.py
^src/anmi/(corpus|retrieval|search|evaluation|serve)/ tests/e2e/test_passages.py
^src/anmi/search/ tests/search/test_searching.py
^src/anmi/(corpus|retrieval|adaptation)/ tests/e2e/test_collections.py tests/corpus/test_sentences.py
^src/anmi/(report|hooks|corpus)/ tests/e2e/test_security.py
^src/anmi/cli/|^src/anmi/.*.jinja|^deploy/|^docs/production tests/e2e/test_package.py tests/deploy tests/cli
^(README.md|docs/|src/anmi/cli/) tests/e2e/test_readme.py
^conf/base/catalog|/pipeline.py$$|^src/anmi/(cli/viz|datasets/artifact|report/f)|^docs/images/viz tests/e2e/test_viz.py
^src/anmi/(serve/|cli/serve|corpus/marks|retrieval/retrieve) tests/e2e/test_serve.py tests/cli/test_mcp.py
^notebooks/|^docs/notebooks|^src/anmi/(report|evaluation|search)/|^conf/base/catalog tests/e2e/test_notebooks.py
endef
export RARE_TESTS

# Where it matches, the speed of mining is compared with the committed one, too.
MINING := ^src/anmi/(retrieval|corpus|engine|store|pipelines)/

# A rare test that changed itself is run, too.
changed: .venv/.installed-test ## the rare tests of what changed since BASE=COMMIT; all where there is no such commit
	@if [ -z "$(BASE)" ] || ! changed=$$(git diff --name-only --no-renames "$(BASE)" -- 2>/dev/null); then \
	  echo "==> pytest, all rare tests: what changed cannot be told"; $(PYTEST) -m rare && exec $(MAKE) bench; exit; \
	fi; \
	files=$$({ echo "$$changed" | grep -E '^tests/.*/test_[^/]*.py$$'; \
	  echo "$$RARE_TESTS" | while read -r pattern files; do \
	    if echo "$$changed" | grep -Eq "$$pattern"; then echo "$$files"; fi; done; } | tr ' ' '\n' | sort -u); \
	found=$$(for file in $$files; do [ ! -e "$$file" ] || echo "$$file"; done); \
	echo "==> pytest, the rare tests of what changed:" $${found:-none}; \
	[ -z "$$found" ] || { $(PYTEST) -m rare $$found || [ $$? -eq 5 ] || exit 1; }; \
	if echo "$$changed" | grep -Eq '$(MINING)'; then exec $(MAKE) bench; fi

bench: .venv/.installed-test ## mine beside mine_hard_negatives: refuses what takes two fifths more of processor or memory
	@echo "==> the speed of mining beside mine_hard_negatives"
	@$(BIN)/python benchmarks/peer_mining.py $${ANMI_DATA:-../shared/data}/medquad --times 1 --check

stale: .venv/.installed ## count the changes since each benchmark was measured, in benchmarks/results/README.md
	@$(BIN)/python benchmarks/stale.py

docs: .venv/.installed-test ## build the documentation as a site with a search, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/site/index.html"

viz: .venv/.installed ## write the pipeline, with what the last run made, as a site, in build
	@$(BIN)/kedro viz build --include-previews

install: .venv/.installed ## only make .venv with the locked versions

.venv/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no working Python 3.11 (from 3.11.4) or 3.12 on the PATH: install one, or name it with PYTHON=..."; exit 1; }
	@echo "==> making .venv with $(PYTHON)"
	@"$(PYTHON)" -m venv .venv
	@# torch first and alone: a CPU build, where the index prefers one, then satisfies the lock as well.
	@echo "==> installing torch, the largest package"
	@$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $$(grep '^torch==' requirements.lock)
	@echo "==> installing all $$(grep -c == requirements.lock) packages at their locked versions (minutes, once)"
	@$(PIP) -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@# pip compiles all but this package, and where PYTHONDONTWRITEBYTECODE is set, every command would.
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/.installed-test: .venv/.installed requirements-test.lock
	@echo "==> installing what the tests need"
	@$(PIP) -r requirements.lock -r requirements-test.lock
	@touch $@

audit-packages: .venv/.installed-test ## compare the locked versions with the known vulnerabilities; needs pypi.org
	@# --strict: a package that could not be looked up is an error, or without a network all would seem well.
	@$(BIN)/pip-audit --strict --disable-pip --no-deps --progress-spinner off \
	  $(addprefix --ignore-vuln ,$(shell sed -n 's/^| `\([A-Z0-9-]*\)`.*/\1/p' docs/security.md)) \
	  -r requirements.lock -r requirements-test.lock

FREEZE = freeze --all --exclude pip --exclude anmi-retrieval | sed -E 's/\+[a-z0-9]+$$//'
lock: ## resolve the newest versions that pyproject.toml allows and write both lock files
	@rm -rf build/lock && "$(PYTHON)" -m venv build/lock
	@build/lock/bin/pip install --quiet "setuptools>=77" .
	@(echo "# Exact versions of what the project runs with; \`make lock\` writes this file."; \
	  build/lock/bin/pip $(FREEZE)) > requirements.lock
	@build/lock/bin/pip install --quiet ".[test]"
	@(echo "# What the tests need besides requirements.lock; \`make lock\` writes this file."; \
	  build/lock/bin/pip $(FREEZE) | grep -vxFf requirements.lock) > requirements-test.lock
	@rm -rf build/lock

clean: ## remove the environment and what tools left; data/ stays
	@rm -rf .venv build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .viz
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
