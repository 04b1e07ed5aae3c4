# make serve starts a server on this machine, make test runs every check. Both make what they need in .venv first.
PYTHON ?= python3
VENV ?= .venv
SGLANG_VENV ?= .venv-sglang-0.5.2
SGLANG_0_5_23_VENV ?= .venv-sglang-0.5.23
NEXT_VENV ?= .venv-next
# Only final releases: a launcher's own requirement names a pre-release, so pip would take one for Hydra too.
FINAL ?= "hydra-core~=1.3.2; python_version < '3.14'" "omegaconf~=2.3.0; python_version < '3.14'"
# The next Hydra and the OmegaConf and the launchers that it takes; pip installs pre-releases only by their version.
NEXT ?= hydra-core==1.4.0rc3 omegaconf==2.4.1rc1 hydra-joblib-launcher==1.4.0rc3 hydra-submitit-launcher==1.4.0rc3
# What make test-matrix runs: the tests that meet Hydra and OmegaConf, with each Python and both pairs of them.
MATRIX ?= 3.10 3.12 3.14
MATRIX_TESTS ?= tests/arguments tests/cli tests/compose tests/convert tests/conformance tests/packaging
ARGS ?=
SITE_ARGS ?=

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
SOURCES := sglang_hydra hydra_plugins
PLUGINS := $(wildcard hydra_plugins/sglang_hydra/*.py)
# Tests and benchmarks use what is here: no model is ever fetched.
OFFLINE := HF_HUB_OFFLINE=1
# The quick tests do not disturb each other; real servers and what is timed run one after the other. ARGS='-n 0' here too.
# Many wait for a process: one worker more than there are cores uses that time.
SIDE_BY_SIDE := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test test-rest test-next test-matrix test-real test-long test-site compare-site bench site site-wheel docs generate compile clean python-version

help:
	@echo "make serve      install the embedded engine and serve model=tiny here; ARGS='port=8000' adds overrides"
	@echo "make test       every check but those below: ruff, mypy, pytest with every eighth row of each corpus"
	@echo "make test-rest  the other rows, and the tests that take long; CI runs both"
	@echo "make test-next  the tests of make test with the next versions of Hydra and OmegaConf, in $(NEXT_VENV)"
	@echo "make test-matrix  the tests of configuration with Python $(MATRIX) and the two Hydras that each takes"
	@echo "make test-real  start real servers: SGLang 0.5.2 and 0.5.23 on the CPU, the embedded engine; install the wheel"
	@echo "make test-long  what takes minutes: fuzzing, killing servers"
	@echo "make test-site  build the site and try it in Chromium; node site/tests/pictures.js takes pictures"
	@echo "make compare-site  300 random inputs of three releases: each value of the page's plans and of native ones"
	@echo "make bench      planning and resolving, timed against an empty Hydra app"
	@echo "make generate   write every generated file again: README screens, pages, index, schema, golden screens"
	@echo "make docs       the documentation as a site in build/site/docs, every link checked"
	@echo "make site       the whole site in build/site: the planner in the browser, the documentation"
	@echo "make site-wheel the wheel of the extra ui, which holds the site"
	@echo "make clean      remove the environments and everything built"
	@echo "PYTHON=$(PYTHON) makes $(VENV); it must be Python 3.10 to 3.14"

serve: $(VENV)/.has-local compile
	@echo "Starting a server: python serve.py model=tiny $(ARGS)"
	@# Ctrl-C reaches this shell too, which waits for the server's end; 130 is then no error of make's.
	@trap : INT; $(PY) serve.py model=tiny $(ARGS); code=$$?; [ $$code -eq 130 ] || exit $$code

test: $(VENV)/.has-dev compile
	@echo "== ruff" && $(PY) -m ruff check . && $(PY) -m ruff format --check .
	@echo "== mypy --strict" && $(PY) -m mypy
	@echo "== import-linter" && $(VENV)/bin/lint-imports --no-cache
	@echo "== pytest" && $(OFFLINE) $(PY) -m pytest -m "not real and not registry and not long" --rows sample $(SIDE_BY_SIDE) $(ARGS)

test-rest: $(VENV)/.has-dev compile
	@$(OFFLINE) $(PY) -m pytest -m "not real and not registry and not long" --rows rest $(SIDE_BY_SIDE) $(ARGS)

test-next: $(NEXT_VENV)/.has-dev
	@echo "== pytest, $(NEXT)" && $(OFFLINE) $(NEXT_VENV)/bin/python -m pytest -m "not real and not registry and not long" $(SIDE_BY_SIDE) $(ARGS)

# uv fetches a Python that is not here.
test-matrix: $(VENV)/.has-dev
	@for python in $(MATRIX); do for hydra in 1.3 1.4; do \
	  if [ $$hydra = 1.4 ]; then set -- $(NEXT); elif [ $$python = 3.14 ]; then continue; else set -- $(FINAL); fi; \
	  env=.venv-matrix/$$python-hydra-$$hydra; \
	  echo "== Python $$python, $$*" && $(VENV)/bin/uv venv --quiet --allow-existing --python $$python $$env && \
	  $(VENV)/bin/uv pip install --quiet --python $$env/bin/python -c constraints.txt -e . --group dev "$$@" && \
	  $(OFFLINE) $$env/bin/python -m pytest -m "not real and not registry and not long" $(SIDE_BY_SIDE) $(ARGS) $(MATRIX_TESTS) \
	  || exit 1; done; done

test-real: $(VENV)/.has-dev $(VENV)/.has-local compile
	@PYTHON=$(PYTHON) tests/real/install.sh 0.5.2 $(SGLANG_VENV) & first=$$!; \
	  PYTHON=$(PYTHON) tests/real/install.sh 0.5.23 $(SGLANG_0_5_23_VENV); second=$$?; \
	  wait $$first && exit $$second
	@echo "== pytest, real servers"
	@$(OFFLINE) SGLANG_PYTHON=$(abspath $(SGLANG_VENV))/bin/python EMBEDDED_PYTHON=$(abspath $(VENV))/bin/python \
	  SGLANG_0_5_23_PYTHON=$(abspath $(SGLANG_0_5_23_VENV))/bin/python $(PY) -m pytest -m "real or registry" $(ARGS)

test-long: $(VENV)/.has-dev compile
	@$(OFFLINE) $(PY) -m pytest -m long --timeout 3600 $(ARGS)

bench: $(VENV)/.has-dev compile
	@for file in plan_vs_empty_app start_vs_empty_app import_time resolve_rate catalog_cost sweep_planning point_overhead diagnosis_table client_truth; do \
	  echo "== $$file" && $(OFFLINE) $(PY) benchmarks/$$file.py || exit 1; done

# Look at each difference before you commit it.
generate: $(VENV)/.has-dev compile
	@echo "== record_answers" && $(OFFLINE) SGLANG_HYDRA_OFFLINE=1 $(PY) tools/record_answers.py
	@for tool in config_schema completion_index catalog_page diagnosis_page forecast_page export_pages measured_page audit_upstream reference_pages house readme_screens terminal_pictures; do \
	  echo "== $$tool" && $(OFFLINE) $(PY) tools/$$tool.py $$([ $$tool = house ] && echo --write) || exit 1; done
	@echo "== golden screens" && $(OFFLINE) UPDATE_GOLDEN=1 $(PY) -m pytest -q -n 0 tests/show/test_screens.py tests/planning/choosing/test_catalog.py

docs: $(VENV)/.has-docs
	@$(PY) tools/reference_pages.py --check
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "build/site/docs/index.html"

# Pyodide comes from npm by its lock file; every other part of the site is made of what is in $(VENV).
site: $(VENV)/.has-docs site/node_modules/.has
	@$(PY) site/build.py $(SITE_ARGS)

# The wheel of the extra ui.
site-wheel: site
	@$(PIP) wheel --quiet --no-deps --wheel-dir dist ./site && ls dist/sglang_hydra_ui-*.whl

# Inputs that no recorded answer has, by the releases' own code: natively, then in Chromium. It takes a quarter of an hour.
compare-site: $(VENV)/.has-dev site
	@$(PY) site/tests/native.py build/native_random.json --random 300 --random-alone
	@NATIVE=build/native_random.json PATIENCE_MS=3600000 node --test --test-name-pattern="random inputs of three releases" site/tests/release.test.js

test-site: $(VENV)/.has-dev site
	@test -x /usr/bin/chromium || test -x /usr/bin/chromium-browser || test -x /usr/bin/google-chrome || { echo "Chromium is missing: apt-get install chromium (needs root)"; exit 1; }
	@echo "== tsc" && cd site && npx --no-install tsc --project tsconfig.json
	@echo "== biome" && cd site && npx --no-install biome lint --error-on-warnings .
	@echo "== native plans" && $(PY) site/tests/native.py build/native.json
	@echo "== node --test" && PYTHON=$(abspath $(PY)) node --test --test-concurrency=1 --test-reporter=spec site/tests/*.test.js

site/node_modules/.has: site/package.json site/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: Node.js 18 or newer, https://nodejs.org"; exit 1; }
	@echo "Fetching what the site takes from npm into site/node_modules"
	@cd site && npm ci --silent --ignore-scripts
	@touch $@

# Byte code made once: where Python may not write it, every run would compile the package again.
compile:
	@$(PY) -m compileall -q $(SOURCES)

clean:
	rm -rf $(VENV) $(NEXT_VENV) .venv-matrix $(SGLANG_VENV) $(SGLANG_0_5_23_VENV) .venv-record-* dist build outputs
	rm -rf site/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find multirun -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
	find $(SOURCES) tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +

python-version:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' || \
	  { echo "$(PYTHON) is `$(PYTHON) --version 2>&1`; Python 3.10 to 3.14 is needed: make PYTHON=python3.12 ..."; exit 1; }

$(PY): | python-version
	@echo "Making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# An editable install copies the plugins of Hydra: they are installed again when they change. Groups of dependencies
# are known to pip from 25.1 on.
$(VENV)/.has-dev: pyproject.toml constraints.txt $(PLUGINS) | $(PY)
	@echo "Installing the package and the tools of its tests into $(VENV)"
	@$(PIP) install --quiet 'pip>=25.1'
	@$(PIP) install --quiet -c constraints.txt -e . --group dev $(FINAL)
	@touch $@

$(NEXT_VENV)/.has-dev: pyproject.toml constraints.txt $(PLUGINS) | python-version
	@echo "Installing the package and the tools of its tests into $(NEXT_VENV), with $(NEXT)"
	@$(PYTHON) -m venv $(NEXT_VENV)
	@$(NEXT_VENV)/bin/python -m pip --disable-pip-version-check install --quiet 'pip>=25.1'
	@$(NEXT_VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e . --group dev $(NEXT)
	@touch $@

$(VENV)/.has-docs: pyproject.toml constraints.txt $(PLUGINS) | $(PY)
	@echo "Installing the package and the tools of its documentation into $(VENV)"
	@$(PIP) install --quiet 'pip>=25.1'
	@$(PIP) install --quiet -c constraints.txt -e . --group docs
	@touch $@

# The announcement comes before anything is fetched, so the environment is made inside.
$(VENV)/.has-local: pyproject.toml constraints.txt $(PLUGINS) | python-version
	@echo "The embedded engine (torch and transformers) goes into $(VENV): a download of about 1.2 GB, once."
	@echo "Step 1 of 3: a Python environment"
	@$(MAKE) --no-print-directory $(PY)
	@echo "Step 2 of 3: torch"
	@$(PIP) install -c constraints.txt torch
	@echo "Step 3 of 3: this package and transformers"
	@$(PIP) install -c constraints.txt -e '.[local]'
	@touch $@
