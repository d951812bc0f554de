# make demo: set up, then a first private inference.  make test: set up, then the tests.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# peers have an environment of their own: PyMC takes nutpie for NUTS wherever it is installed
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.installed

.PHONY: demo test lint types calibrate bench clean help
help:
	@echo "make demo       set up and run examples/quickstart.py"
	@echo "make test       set up and run the tests (a quarter of an hour on two cores, most of it compiling)"
	@echo "make lint types static checks"
	@echo "make calibrate  long statistical checks"
	@echo "make bench      benchmarks beside peers (hours); tables and plots in docs/"

$(READY): pyproject.toml tools/find_python.sh
	@test -x $(BIN)/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/python examples/quickstart.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not calibrate"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

calibrate: $(READY)
	$(BIN)/python -m pytest -n 2 -m calibrate

$(BENCH_READY): pyproject.toml tools/find_python.sh
	@test -x $(BENCH_VENV)/bin/python || { python=$$(sh tools/find_python.sh) && "$$python" -m venv $(BENCH_VENV); }
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	@touch $@

bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python -m benchmarks

clean:
	rm -rf $(VENV) $(BENCH_VENV) build dist .pytest_cache .mypy_cache .ruff_cache
