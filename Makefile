# Needs make and Python 3.11 or newer. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
# Processes start faster with compiled files at hand.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
# PostgreSQL of `make test-postgres` and `make check`: a server on which this user may create databases.
POSTGRES_URL := $(or $(LQOPS_TEST_DATABASE_URL),postgresql://$(shell id -un)@127.0.0.1:5432/lqops)

# COVERAGE=1 makes the test targets keep what they covered in build/coverage, for the gates of `make check`; the file is
# named in the environment, where processes that a process forks find it as well.
COVERED := build/coverage
# AGAIN=1 runs only what failed the last time, one test after another.
# Files of tests run side by side, two more than there are processors: many wait for processes of their own.
SIDE_BY_SIDE = $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 2)')
PYTEST = $(if $(COVERAGE),COVERAGE_FILE=$(abspath $(COVERED)/$(1)) $(BIN)/coverage run,$(BIN)/python) -m pytest $(if $(COVERAGE),--hypothesis-profile=thorough) $(if $(AGAIN),--last-failed --last-failed-no-failures none,--workers $(SIDE_BY_SIDE))
before_tests = $(if $(COVERAGE),@mkdir -p $(COVERED) && rm -f $(COVERED)/$(1) $(COVERED)/$(1).*)
after_tests = $(if $(COVERAGE),@$(BIN)/coverage combine --quiet --data-file=$(COVERED)/$(1) $(COVERED)/$(1).*)
MEASURED := $(shell find lqops audit agents tests templates docs -type f ! -name '*.pyc') pyproject.toml README.md

# What decides about safety and evidence: every line and every branch of it is run by a test.
FULLY_COVERED := agents/text/shown.py agents/guard/guard.py agents/guard/consent.py agents/policy/brakes.py agents/policy/consent.py \
	agents/policy/rules.py agents/policy/loosening.py agents/policy/destinations.py agents/skills/handles.py agents/sessions/approval_rules.py \
	agents/policy/costs.py agents/guard/metering.py agents/guard/selftest.py agents/sessions/approvals.py \
	agents/ledger/boundary.py agents/ledger/budgets.py agents/ledger/prices.py agents/sessions/halts.py agents/sessions/pauses.py \
	agents/ledger/journal.py agents/ledger/at_once.py agents/ledger/prepared.py agents/ledger/pooler.py agents/ledger/halt_watch.py agents/ledger/loans.py agents/ledger/outages.py agents/sessions/leases.py agents/guard/refusals.py agents/sessions/second_eyes.py agents/people/delegations.py \
	agents/guard/settlement.py agents/guard/calls.py agents/guard/dispatch.py agents/guard/intents.py agents/guard/embed.py \
	agents/engine/query_vectors.py agents/knowledge/vectors.py agents/providers/openai_embeddings.py agents/engine/indexing.py \
	agents/skills/confinement.py agents/skills/isolat*.py agents/skills/limits.py agents/skills/fetching.py agents/skills/places.py agents/skills/process.py agents/skills/usage.py \
	agents/skills/system_calls.py agents/text/no_database.py agents/skills/probe.py \
	agents/text/clean.py agents/skills/parsing.py agents/skills/literals.py agents/policy/guardrails.py \
	agents/policy/context_window.py agents/policy/conversation.py agents/text/quotes.py \
	agents/ledger/model_servers.py agents/ledger/model_limits.py agents/ledger/declared_models.py agents/definitions/catalogue.py \
	agents/people/second_factor.py agents/people/browser_sessions.py agents/people/sign_ins.py agents/people/ceilings.py agents/people/identities.py agents/database_clock.py agents/sessions/schema.py agents/providers/slots.py agents/roster/release.py lqops/data_folder.py lqops/sign_in.py \
	lqops/sign_in_record.py lqops/oidc.py lqops/oidc_config.py \
	agents/policy/model_catalogue.py agents/net/*.py agents/tls.py audit/*.py audit/redaction/*.py
# Tests that never touch a database run on SQLite alone. So do those of what stands above services that are tested here,
# unless WHOLE=1 is given.
ABOVE_SERVICES := $(addprefix tests/agents/,admin api ask builtin_skills definitions engine management prompts roster skills walk \
	$(addprefix loop/test_,alerts.py cycle.py days.py first_readings.py gate.py guardrails.py heartbeat.py hot_state.py \
		restarts.py scenarios.py stop_and_renew.py stuck_loops.py yield.py) \
	$(addprefix sensors/test_,conditions.py poll.py sample_agents.py signals_firing.py stream.py pending_scores.py watch.py) \
	people/test_channels.py test_tracing.py) $(addprefix tests/lqops/test_,oidc.py private_files.py up_errors.py) \
	tests/flows/test_canary.py tests/flows/test_long_contracts.py tests/simulation/test_scheduler.py
DATABASE_FREE := $(addprefix --ignore=,$(if $(WHOLE),,$(ABOVE_SERVICES)) \
	$(shell grep -rL django_db tests/agents tests/audit --include='test_*.py') \
	$(addprefix tests/lqops/test_,env.py logs.py model_catalogue.py settings.py up.py web.py) \
	$(filter-out %/test_migrations.py %/test_chokepoint.py %/test_layers.py,$(wildcard tests/architecture/test_*.py)))
LONG = -m 'long and not stress' $(addprefix --part=,$(PART))
# What failed runs again as it is named: which rows are long and what a part has depends on all tests.
ifdef AGAIN
LONG = -m 'not stress'
override PART :=
endif
# On PostgreSQL every part has what depends on statements, locks, races and processes, and people who decide and halt.
IN_EVERY_PART := $(addprefix tests/agents/,guard ledger sessions test_) tests/architecture/test_migrations.py tests/audit \
	tests/flows tests/simulation $(addprefix tests/browser/test_,decisions.py levers.py)
comma := ,
space := $(subst ,, )

.PHONY: help setup dev run test test-long test-postgres check static coverage stress bench screenshots chaos mutants lock fresh-lock release clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.core ## Install lqops into .venv

dev: $(VENV)/.dev ## Install lqops and what its tests need

run: $(VENV)/.core ## Start lqops on this machine and print its address (PORT=8001 for another port)
	@$(BIN)/python manage.py up $(if $(PORT),--port $(PORT))

# The tests in a browser have installations of their own, on SQLite: they run once, with `make test-postgres`, as do those
# that need Redis.
test: $(VENV)/.dev ## Run the tests on SQLite, without long ones and those in a browser
	$(call before_tests,sqlite)
	LQOPS_TEST_DATABASE_URL= $(call PYTEST,sqlite) --ignore=tests/browser -m 'not stress and not long and not redis'
	$(call after_tests,sqlite)

# Exhaustive tables and long tests of processes, of which `make test` runs a sample. On PostgreSQL they have no browser.
test-long: $(VENV)/.full ## Run the long tests on SQLite, and on PostgreSQL when LQOPS_TEST_DATABASE_URL is set (PART=2/24 for one of 24 parts)
	$(call before_tests,long)
	LQOPS_TEST_DATABASE_URL= $(call PYTEST,long) $(LONG)
	$(if $(LQOPS_TEST_DATABASE_URL),$(call PYTEST,long) $(LONG) --ignore=tests/browser $(DATABASE_FREE))
	$(call after_tests,long)

test-postgres: $(VENV)/.full ## Run tests that use a database on PostgreSQL (LQOPS_TEST_DATABASE_URL), with WHOLE=1 all of them, with PART=2/24 one part of what every commit need not run; a skip fails
	$(call before_tests,postgres)
	LQOPS_TEST_DATABASE_URL=$(POSTGRES_URL) $(call PYTEST,postgres) -p tests.no_skips $(DATABASE_FREE) $(if $(PART),--part=$(PART) --whole='$(IN_EVERY_PART)')
	$(call after_tests,postgres)

check: static coverage ## Check format, lint, types, layers, migrations, deployment and coverage

static: export LQOPS_VAR_DIR = build/var
static: $(VENV)/.full
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	LQOPS_HTTPS=1 $(BIN)/python manage.py check --deploy --fail-level WARNING

# Each database has branches of its own, so the gates judge all runs together.
coverage: $(COVERED)/sqlite $(COVERED)/long $(COVERED)/postgres
	@$(BIN)/coverage combine --quiet --keep --data-file=$(COVERED)/all $^
	$(BIN)/coverage report --data-file=$(COVERED)/all --fail-under=95 --precision=1
	$(BIN)/coverage report --data-file=$(COVERED)/all --fail-under=100 --include='$(subst $(space),$(comma),$(strip $(FULLY_COVERED)))'

$(COVERED)/sqlite: $(MEASURED)
	@$(MAKE) --no-print-directory test COVERAGE=1

$(COVERED)/long: $(MEASURED)
	@$(MAKE) --no-print-directory test-long COVERAGE=1 LQOPS_TEST_DATABASE_URL=$(POSTGRES_URL)

$(COVERED)/postgres: $(MEASURED)
	@$(MAKE) --no-print-directory test-postgres WHOLE=1 COVERAGE=1

stress: test-long ## Run the long tests and the full-size figures on SQLite, and on PostgreSQL when LQOPS_TEST_DATABASE_URL is set
	LQOPS_TEST_DATABASE_URL= $(BIN)/python -m pytest --timeout=0 -m hypothesis --hypothesis-profile=exploring
	LQOPS_TEST_DATABASE_URL= $(BIN)/python -m pytest --timeout=0 -m stress -s
	$(if $(LQOPS_TEST_DATABASE_URL),$(BIN)/python -m pytest --timeout=0 -m stress -s)

bench: $(VENV)/.full ## Measure calls, audit log, runs, ticks, streams, texts, memory and pages (ROUNDS=60, ONLY=guard, ROWS=1000000); build/bench.jsonl
	$(BIN)/python -m tests.benchmarks --postgres $(POSTGRES_URL)_bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) $(if $(ROWS),--rows $(ROWS))

screenshots: $(VENV)/.full ## Take the pictures of docs/images with a browser, from an installation of its own
	PYTHONPATH=. $(BIN)/python -m tests.browser.screenshots

chaos: $(VENV)/.full ## Break an installation of its own for an hour (MINUTES=60, SEED=, BROKER=redis or database), with PostgreSQL and Redis; fails too if little happened
	PYTHONPATH=. $(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(BROKER),--broker $(BROKER))

mutants: $(VENV)/.full ## Change guard, policy, ledger and approvals in small ways: a test must fail for 90 % (SAMPLE=150, SEED=, MINUTES=)
	LQOPS_TEST_DATABASE_URL= PYTHONPATH=. $(BIN)/python -m tests.mutations $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

# What a release is installed with: every package of the core and of these extras, by version and hash.
RELEASED_EXTRAS := postgres chat redis metrics oidc otel prices semantic
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links $(addprefix --extra ,$(RELEASED_EXTRAS)) --output-file

lock: $(VENV)/.release ## Renew requirements.lock after a change of pyproject.toml (UPGRADE=1 takes newer versions too)
	$(COMPILE) requirements.lock $(if $(UPGRADE),--upgrade) > /dev/null

fresh-lock: $(VENV)/.release
	@mkdir -p build && cp requirements.lock build/requirements.lock
	@$(COMPILE) build/requirements.lock > /dev/null
	@cmp -s requirements.lock build/requirements.lock || { echo "requirements.lock is out of date: run make lock" >&2; exit 1; }

release: fresh-lock ## Build the packages, their lock file, their parts list (SBOM) and checksums in dist/
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -m build --outdir dist .
	cp requirements.lock dist/
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-format JSON --output-file dist/sbom.cdx.json
	cd dist && $(PYTHON) -c 'import hashlib, pathlib; [print(hashlib.sha256(f.read_bytes()).hexdigest(), "", f) for f in sorted(pathlib.Path().iterdir())]' > ../build/SHA256SUMS && mv ../build/SHA256SUMS .

clean: ## Remove .venv and everything that was built; var/ (your data and keys) stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
	find lqops audit agents tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- The virtual environment: one stamp per set of packages, renewed when pyproject.toml changes ---

# uv installs in seconds what takes pip a minute. It does not read pip's settings: who has named an index or constraints
# to pip gets pip, and so does everybody for whom uv fails.
install = { command -v uv && ! $(BIN)/python -m pip config list | grep -E '\.(index-url|no-index|constraint)='; } >/dev/null 2>&1 && \
	uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '$(1)' || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '$(1)'

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python 3.11 or newer, or name one, as in make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lqops needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name a newer one, as in make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }

$(VENV)/.core: what := .
$(VENV)/.dev: what := .[dev,metrics,oidc,otel,prices,semantic]
$(VENV)/.full: what := .[dev,lint,postgres,redis,metrics,oidc,otel,prices,semantic,browser]
$(VENV)/.release: what := .[release]
$(VENV)/.core $(VENV)/.dev $(VENV)/.full $(VENV)/.release: pyproject.toml | $(BIN)/python
	@echo "Installing $(what)"
	@$(call install,$(what))
	@touch $@
