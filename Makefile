# make demo: set up, then a first private inference.  make test: set up, then the tests.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# peers have an environment of their own: PyMC takes nutpie for NUTS wherever it is installed
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.installed
# so has the site: other people's libraries make releases in its notebooks
DOCS_VENV := .venv-docs
DOCS_READY := $(DOCS_VENV)/.installed
# and so have the tools whose releases are read: SmartNoise wants an older OpenDP, Tumult an older NumPy
INTEROP_VENV := .venv-interop
INTEROP_READY := $(INTEROP_VENV)/.installed
SPHINX := $(DOCS_VENV)/bin/python -m sphinx -W --keep-going -d docs/_build/doctrees

.PHONY: docs docs-links demo test test-wide test-oracles test-pages test-interop coverage lint types calibrate mutate package bench clean help
help:
	@echo "make demo       set up and run examples/quickstart.py"
	@echo "make test       set up and run the tests: all logic, every promise of privacy, each sampler once against an exact posterior"
	@echo "make test-wide  more families, sizes and shapes of what these have one of (a quarter of an hour on two cores)"
	@echo "make test-oracles  tests of what the tests compare with: exact answers, statistical assertions, breaks they must notice"
	@echo "make test-pages  the Python of README, docs and docstrings, as written; pages with short chains"
	@echo "make test-interop  readers against thousands of releases of OpenDP, diffprivlib, SmartNoise and Tumult (needs Java)"
	@echo "make lint types static checks"
	@echo "make coverage   the tests, and which lines none of them reaches (compiled loops are not seen)"
	@echo "make package    build wheel and source distribution, and try both in a clean environment"
	@echo "make calibrate  long statistical checks, and a table of their p-values (PART=tests/curator for some)"
	@echo "make mutate     break the package in forty ways and see which test notices each (an hour)"
	@echo "make docs       the site in docs/_build/html; runs every notebook that has changed (make docs-links: other sites' links)"
	@echo "make bench      benchmarks beside peers (hours); tables and plots in docs/"

$(READY): pyproject.toml tools/find_python.sh
	@test -x $(BIN)/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/python examples/quickstart.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests -m "not wide and not calibrate and not oracles and not pages and not interop"

test-wide: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "wide and not calibrate" tests

test-oracles: $(READY)
	$(BIN)/python -m pytest -n 2 -m oracles tests

test-pages: $(READY)
	$(BIN)/python -m pytest -n 2 -m pages tests/test_docs.py
	$(BIN)/python -m pytest -n 2 pymc_dp

$(INTEROP_READY): pyproject.toml tools/find_python.sh
	@for folder in tools smartnoise tumult; do \
		test -x $(INTEROP_VENV)/$$folder/bin/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(INTEROP_VENV)/$$folder; } || exit 1; done
	$(INTEROP_VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,interop-tests]"
	$(INTEROP_VENV)/smartnoise/bin/python -m pip install --quiet --disable-pip-version-check "smartnoise-sql>=1.0.10" "setuptools<81"
	$(INTEROP_VENV)/tumult/bin/python -m pip install --quiet --disable-pip-version-check "tmlt.analytics>=0.21" "setuptools<81"
	@touch $@

test-interop: $(INTEROP_READY)
	PYMC_DP_SMARTNOISE_PYTHON=$(INTEROP_VENV)/smartnoise/bin/python PYMC_DP_TUMULT_PYTHON=$(INTEROP_VENV)/tumult/bin/python \
		$(INTEROP_VENV)/tools/bin/python -m pytest -n 0 -m interop tests/interop

coverage: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not calibrate and not interop" --cov --cov-report=term --cov-report=xml

package: $(READY)
	sh tools/check_package.sh $(BIN)/python

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

mutate: $(READY)
	$(BIN)/python tools/mutate.py

PART ?= tests

calibrate: $(READY)
	$(BIN)/python -m pytest -n 2 -m calibrate $(PART)

$(BENCH_READY): pyproject.toml tools/find_python.sh
	@test -x $(BENCH_VENV)/bin/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(BENCH_VENV); }
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	@touch $@

bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python -m benchmarks

$(DOCS_READY): pyproject.toml tools/find_python.sh
	@test -x $(DOCS_VENV)/bin/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(DOCS_VENV); }
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

docs: $(DOCS_READY)
	rm -rf docs/reference
	$(SPHINX) -b html docs docs/_build/html
	$(DOCS_VENV)/bin/python tools/check_links.py

docs-links: $(DOCS_READY)
	$(SPHINX) -b linkcheck docs docs/_build/links

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DOCS_VENV) $(INTEROP_VENV) docs/_build docs/reference build dist .pytest_cache .mypy_cache .ruff_cache .coverage coverage.xml
