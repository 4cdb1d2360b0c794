# Two commands do everything, set-up included:   make demo   make test
# Needed: Python >= 3.11 (with its venv module), git, make. uv is used when it is there.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := requirements/runtime.txt requirements/dev.txt requirements/browser.txt requirements/adapters.txt requirements/stores.txt
PACKAGES := ipc sandbox memory contexts lock client kernel mcp_server
UV := $(shell command -v uv 2>/dev/null)
# Where there is no uv, pip installs the pinned one first: with it everything else is there five times as fast. What uv
# does not find is left to pip, to which alone a place for packages may have been named.
PIP := $(BIN)/pip install -qq --no-compile --disable-pip-version-check
install = { "$(or $(UV),$(BIN)/uv)" pip install --quiet --python $(BIN)/python $(1)$(if $(UV),, || $(PIP) $(1)); }

# A lock names everything that is installed: a resolver would only look for releases newer than the lock, and fail on them.
LOCKED := --no-deps --require-hashes

# The first interpreter that runs and is new enough; name another with `make PYTHON=/path/to/python ...`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { command -v $$p; break; }; done)

PYTEST := $(BIN)/python -m pytest
# What fails is run once more, one test after the other, as CPython's regrtest does with --rerun: a machine that others
# use, too, now and then lets a process wait for longer than a test does. A test that needs it is to be mended all the same.
once_more = { test $$? -eq 1 && echo "*** Once more what has failed. A test that passes now is unsteady: mend it." && \
	$(PYTEST) -q -n 0 --maxfail 3 --last-failed --last-failed-no-failures none $(1); }
# More than there are processors: half of the time a test waits for processes that it has started.
JOBS ?= 4
ARGS ?=
AGENTS_DIR ?= $(abspath $(VENV))/agents
# npm gives an older release to a Node.js that the newest one does not support: with a Node.js of its own and @latest not.
AGENT_PACKAGES ?= node@22 $(addsuffix @latest,@anthropic-ai/claude-code opencode-ai @openai/codex @google/gemini-cli \
	@qwen-code/qwen-code @github/copilot)

.PHONY: help demo tour compiled test verify-types public-names default-policy test-adapters test-agents test-stores store-servers test-browser screenshots chaos chaos-supervisor chaos-memory chaos-cells chaos-policies chaos-queue chaos-loop lock-hostile named-texts load test-pythons lint format type cover fuzz fuzz-guided fuzz-scan mutants large bench economy bench-contexts bench-compat bench-guards bench-peers lock clean install bench-fork bench-queries bench-lock lock-quality escapes escapes-all crawl syscalls everything

help:  ## Show what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

demo: $(STAMP)  ## Watch one root agent and three sub-agents share one large text (FILE=path for your own)
	@$(BIN)/rlm-kernel demo $(if $(FILE),--file "$(FILE)")

tour: $(STAMP)  ## Follow agents through one story: plan, share, kill, resume, report, in a repository that is hostile
	@$(BIN)/rlm-kernel tour

# What kills processes at random finds them as users have them: also half-way through their imports.
chaos chaos-policies chaos-queue chaos-loop load: export RLM_TESTS_REAL_STARTS := 1

# Every test starts processes, and kernels write no bytecode: what they import is compiled before, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

compiled: $(STAMP)
	@$(BIN)/python -m compileall -qq -x /test_ $(PACKAGES) tests

test: compiled  ## Run all tests (ARGS="-k name" for some)
	@$(PYTEST) -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS) || $(call once_more,$(ARGS))

chaos: $(STAMP)  ## Kill processes at random instants under a model of what must survive (OPS=5000 SEED=1)
	@RLM_CHAOS_OPS=$(or $(OPS),5000) RLM_CHAOS_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x tests/chaos $(ARGS)

chaos-supervisor: $(STAMP)  ## Kill supervisors, keepers and kernels at random instants (OPS=500 SEED=1)
	@RLM_SUPERVISOR_OPS=$(or $(OPS),500) RLM_SUPERVISOR_SEED=$(or $(SEED),1) RLM_SUPERVISOR_RECORD=$(RECORD) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/chaos/test_supervisor_killed.py $(ARGS)

chaos-memory: $(STAMP)  ## Change sessions of 100 MB in a control group that is too small for them (SESSIONS=8 GROUP=700)
	@RLM_MEMORY_SESSIONS=$(or $(SESSIONS),8) RLM_MEMORY_GROUP=$(or $(GROUP),700) RLM_MEMORY_SIZE=100 $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/chaos/test_memory_group.py $(ARGS)

chaos-cells: $(STAMP)  ## Hold cells, looks, queries, rollbacks and kills of strict sessions against plain Python (EXAMPLES=300)
	@RLM_ROLLBACK_EXAMPLES=$(or $(EXAMPLES),300) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/kernel/supervisor/test_rollback_model.py -k plain_python $(ARGS)

chaos-policies: $(STAMP)  ## Look for a sequence of calls, edits and kills that loosens a policy (OPS=20000 SEED=1)
	@RLM_POLICY_OPS=$(or $(OPS),20000) RLM_POLICY_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/chaos/test_policies_hold.py $(ARGS)

chaos-loop: $(STAMP)  ## Kill agents, the daemon and the loop while they drain an epic (FRAMES=60 AGENTS=8 SEED=1)
	@RLM_FLEET_FRAMES=$(or $(FRAMES),60) RLM_FLEET_AGENTS=$(or $(AGENTS),8) RLM_FLEET_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/chaos/test_fleet.py $(ARGS)

chaos-queue: $(STAMP)  ## Kill workers and the daemon at random while they drain a queue (TASKS=1000 WORKERS=16 SEED=1)
	@RLM_QUEUE_TASKS=$(or $(TASKS),1000) RLM_QUEUE_WORKERS=$(or $(WORKERS),16) RLM_QUEUE_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/chaos/test_queue.py $(ARGS)

lock-hostile: $(STAMP)  ## Scan a tree of 100,000 hostile entries and 1,000 sources that hold their parser (SCALE=1 SOURCES=1000)
	@RLM_HOSTILE_SCALE=$(or $(SCALE),1) RLM_HOSTILE_SOURCES=$(or $(SOURCES),1000) $(PYTEST) -q -s -n 0 -o timeout=0 tests/lock/scanner/test_hostile_tree.py $(ARGS)

named-texts: $(STAMP)  ## Hold sessions with equal texts, and code that takes their names, against a model (OPS=20000 SEED=1)
	@RLM_TEXT_OPS=$(or $(OPS),20000) RLM_TEXT_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x -n 0 -o timeout=0 tests/mcp_server/tools/test_named_texts.py $(ARGS)

load: $(STAMP)  ## Put many clients on many sessions at once, and look for errors and leaks (MINUTES=10 SEED=1)
	@RLM_LOAD_MINUTES=$(or $(MINUTES),10) RLM_LOAD_SEED=$(or $(SEED),1) $(PYTEST) -q -s -x tests/load $(ARGS)

test-pythons:  ## Run all tests on every supported Python that is installed here
	@.ci/each-python $(MAKE) test

escapes: $(STAMP)  ## Try every known escape on both walls and without them (ARGS="files types" for some families)
	@$(BIN)/python tests/escapes/run_escapes.py $(ARGS)

escapes-all: $(STAMP)  ## Run the tests of the corpus and of reopened holes with all of them, of which make test takes a fifth
	@RLM_ESCAPES_SHARE=1 $(PYTEST) -q -n 2 tests/escapes/test_corpus.py tests/escapes/test_reverted.py $(ARGS)

WORK ?= tests/kernel/supervisor/test_refusals.py tests/kernel/supervisor/test_fork.py tests/kernel/supervisor/test_recovery.py tests/sandbox/os_wall/test_ordinary_work.py tests/mcp_server/tools/test_query.py tests/contexts/loading/test_tables.py

crawl: $(STAMP)  ## Search for ways through the language wall (MINUTES=60, ARGS="--policy data" for one policy)
	@$(BIN)/python tests/escapes/crawl.py --minutes $(or $(MINUTES),3) $(ARGS)

syscalls: $(STAMP)  ## Record which system calls workers and helper processes make at work, and compare with the filter (WORK=tests for all)
	@$(BIN)/python tests/support/record_calls.py $(ARGS) -- $(PYTEST) -q -n 0 $(WORK)

lint: $(STAMP)  ## Check style, formatting and the import layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache

format: $(STAMP)  ## Rewrite the sources in the project's format
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

type: $(STAMP)  ## Check the types, strictly
	@$(BIN)/mypy

verify-types: $(VENV)/types/.installed  ## Ask a second type checker, 310 MB, whether the types of rlm_client are complete
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/support/verify_types.py $(VENV)/types/bin/basedpyright rlm_client

# A folder of its own: what it brings is of no use to anything else.
$(VENV)/types/.installed: requirements/types.txt $(STAMP)
	@$(BIN)/python -m venv --clear $(if $(UV),--without-pip) $(@D)
	@$(if $(UV),"$(UV)" pip install --quiet --python $(@D)/bin/python,$(@D)/bin/pip install -qq --disable-pip-version-check) \
		$(LOCKED) -r $<
	@touch $@

cover: $(STAMP)  ## Hold the branch coverage of each part, forked processes included, against its floor (PART=ipc)
	@$(BIN)/python tests/support/coverage_floor.py $(PART) -- -n 2 $(ARGS)

export CHROMIUM ?= /usr/bin/chromium
# A cache of its own: these tests run beside the others, and each remembers what has failed.
BROWSER_TESTS = tests/browser -o cache_dir=.pytest_cache/browser $(ARGS)

test-browser: $(VENV)/.browser  ## Drive JupyterLab and the web page in a real browser (ARGS="-k name" for some)
	@$(PYTEST) -q -n 2 --dist loadfile $(BROWSER_TESTS) || $(call once_more,$(BROWSER_TESTS))

test-adapters: $(VENV)/.adapters  ## Run dspy and rlms, 250 MB of packages, on sessions (ARGS="-k name" for some)
	@$(PYTEST) -q tests/adapters $(ARGS)

test-agents: $(STAMP)  ## Drive six real agent programs by a scripted model; npm installs them first, 1.8 GB (FRAMES=60 ARGS="-k codex")
	@test -x $(AGENTS_DIR)/node_modules/.bin/copilot || npm install --silent --no-audit --no-fund --prefix $(AGENTS_DIR) $(AGENT_PACKAGES)
	@RLM_AGENT_FRAMES=$(or $(FRAMES),5) RLM_AGENT_PROGRAMS=$(AGENTS_DIR)/node_modules/.bin $(PYTEST) -q -s -n 0 tests/agents $(ARGS)

test-stores: $(VENV)/.stores  ## Read real S3, SSH and SMB servers, 80 MB of packages (ARGS="-k name" for some)
	@$(PYTEST) -q $(addprefix tests/mcp_server/tools/test_,s3.py sftp.py smb.py) $(ARGS)

store-servers:  ## Install the server for test-stores that pip does not: Samba, with apt
	@test -x /usr/sbin/smbd || { $(AS_ROOT) apt-get update --quiet && $(AS_ROOT) apt-get install --quiet --yes --no-install-recommends samba; }

$(VENV)/.stores: $(STAMP) requirements/stores.txt
	@$(call install,$(LOCKED) -r requirements/stores.txt)
	@touch $@

$(VENV)/.adapters: $(STAMP) requirements/adapters.txt
	@$(call install,$(LOCKED) -r requirements/adapters.txt)
	@touch $@

screenshots: $(VENV)/.browser  ## Make the pictures in docs/images anew, by the browser tests that show them
	@RLM_SCREENSHOTS="$(CURDIR)/docs/images" $(PYTEST) -q tests/browser -m screenshot $(ARGS)

first-answers: $(STAMP)  ## Write what a client is told at a user's first start, after a change of the core tools
	@RLM_FIRST_ANSWERS=1 $(PYTEST) -q -n 0 tests/mcp_server/front/test_first_answers.py

default-policy: $(STAMP)  ## Write what the policy `default` comes to for zygotes, after a change of it
	@RLM_DEFAULT_POLICY=1 $(PYTEST) -q -n 0 tests/kernel/test_session_policy.py -k zygotes

public-names: $(STAMP)  ## Write down what users may rely on, after a change of it that is meant
	@RLM_PUBLIC_NAMES=1 $(PYTEST) -q -n 0 tests/project/test_public_names.py

AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

$(CHROMIUM):
	@{ $(AS_ROOT) apt-get update --quiet && $(AS_ROOT) apt-get install --quiet --yes chromium; } || { \
		echo "no browser: install chromium, or name one with make CHROMIUM=/path/to/it" >&2; exit 1; }

$(VENV)/.browser: $(STAMP) requirements/browser.txt | $(CHROMIUM)
	@$(call install,$(LOCKED) -r requirements/browser.txt)
	@touch $@


fuzz: $(STAMP)  ## Feed random input to the compiler, the policy parser and the wire formats (FUZZ_MINUTES=10)
	@end=$$(( $$(date +%s) + 60 * $(or $(FUZZ_MINUTES),10) )); while [ $$(date +%s) -lt $$end ]; do \
		FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),2000) $(PYTEST) -q -n $(JOBS) -o timeout=0 tests/fuzz $(ARGS) || exit 1; done

fuzz-guided: $(VENV)/.guided  ## Let coverage guide the fuzzing of policies, streams, lines and cells (FUZZ_MINUTES=10 ARGS="policy")
	@$(BIN)/python tests/fuzz/guided.py $(or $(FUZZ_MINUTES),10) $(ARGS)

# Binaries only: building atheris takes a compiler of its own.
$(VENV)/.guided: $(STAMP) tests/fuzz/requirements.txt
	@$(call install,--only-binary :all: $(LOCKED) -r tests/fuzz/requirements.txt)
	@touch $@

fuzz-snapshots: $(STAMP)  ## Compare the checker of snapshots in C with its rules in Python (ROUNDS=300000)
	@RLM_FUZZ_ROUNDS=$(or $(ROUNDS),300000) $(PYTEST) -q -n 0 -o timeout=0 tests/kernel/worker/test_snapshot_checker.py $(ARGS)

fuzz-scan: $(STAMP)  ## Compare scan with Python's re on 50,000 random patterns and texts (ARGS="--pairs 1000 --seed 1")
	@$(BIN)/python tests/support/scan_pairs.py $(ARGS)

mutants: $(STAMP)  ## Put small faults into the code that matters, and see whether the tests notice (AREA=quota SAMPLE=40 SEED=1)
	@$(BIN)/python tests/support/mutants.py $(AREA) --sample $(or $(SAMPLE),40) --seed $(or $(SEED),1) $(ARGS)

large: $(STAMP)  ## Load, page and search 5 GB, and use it as one string (11 GB of disk)
	@RLM_LARGE=1 $(PYTEST) -q -n 0 tests/contexts/text/test_large.py $(ARGS)

bench: $(STAMP)  ## Measure the speed the project promises (ratios of interleaved runs)
	@$(BIN)/python bench/run.py $(ARGS)

economy: $(STAMP)  ## Measure what naming texts, frames, hand-offs and the lock save, with the losses (docs/economy.md)
	@$(BIN)/python bench/economy.py

bench-contexts: $(STAMP)  ## Measure loading and searching against the targets (ARGS="--mb 1000" for a larger log)
	@$(BIN)/python bench/contexts.py $(ARGS)

bench-queries: $(STAMP)  ## Measure what waiting for an answer costs, and how fast a batch is answered
	@$(BIN)/python bench/queries.py $(ARGS)

bench-fork: $(STAMP)  ## Measure forks, checkpoints, rollback and recovery (ARGS="--quick" without 1 GB sessions)
	@$(BIN)/python bench/fork.py $(ARGS)

bench-lock: $(STAMP)  ## Measure what a map of a project costs, at 1,000 and 75,000 files (ARGS="--files 1000" for one size)
	@$(BIN)/python bench/lock_map.py $(ARGS)

lock-quality: $(STAMP)  ## See how well maps name the files that are wanted (PROJECTS=folder of git repositories with histories)
	@test -d "$(PROJECTS)" || { echo "name a folder of git repositories: make lock-quality PROJECTS=folder" >&2; exit 1; }
	@$(BIN)/python bench/lock_quality/run_tasks.py --projects $(PROJECTS) $(ARGS)

bench-compat: $(VENV)/.compat  ## Run public corpora with and without the language wall (ARGS="HumanEval" for one)
	@$(BIN)/python bench/compat/run_corpora.py $(ARGS)

bench-guards: $(VENV)/.compat  ## Measure code behind the language wall against plain CPython, and compare with the target
	@$(BIN)/python bench/language.py $(ARGS)

PEERS := aleph rlms monty ipybox

bench-peers: $(foreach peer,$(PEERS),$(VENV)/peers/$(peer)/.installed)  ## Ask the same work of four peers, 400 MB of packages (ARGS="--only speed")
	@$(BIN)/python bench/peers.py $(ARGS)

$(VENV)/peers/%/.installed: bench/requirements/%.txt $(STAMP)
	@$(BIN)/python -m venv --clear $(if $(UV),--without-pip) $(@D)
	@$(if $(UV),"$(UV)" pip install --quiet --compile-bytecode --python $(@D)/bin/python,$(@D)/bin/pip install -qq --disable-pip-version-check) \
		$(LOCKED) -r $<
	@touch $@

$(VENV)/.compat: $(STAMP) bench/compat/requirements.txt
	@$(call install,$(LOCKED) -r bench/compat/requirements.txt)
	@touch $@

install: $(STAMP)  ## Only set up the environment

everything: $(VENV)/.browser $(VENV)/.adapters $(VENV)/.stores  ## Set up what all tests need, 650 MB: make test runs them then

# Hash-pinned files first, then this project itself: nothing is resolved and nothing is built in isolation, so
# that what is installed is what the lock files name.
$(STAMP): requirements/dev.txt pyproject.toml hatch_build.py $(shell find contexts kernel sandbox -name '*.c') kernel/kernelspec/kernel.json
	@test -n "$(PYTHON)" || { echo "rlm-kernel needs Python 3.11 or newer: install it, or name it with make PYTHON=..." >&2; exit 1; }
	@echo "Setting up $(VENV): less than a minute"
ifneq ($(UV),)
	@test -x $(BIN)/python || "$(UV)" venv --quiet --python "$(PYTHON)" "$(VENV)"
else
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv "$(VENV)" || { rm -rf "$(VENV)"; \
		echo "$(PYTHON) has no venv module: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements/dev.txt >$(VENV)/uv.txt
	@test -x $(BIN)/uv || $(PIP) $(LOCKED) -r $(VENV)/uv.txt
endif
	@$(call install,$(LOCKED) -r requirements/dev.txt)
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || true  # not by each kernel that imports it first
	@$(call install,--no-deps --no-build-isolation --no-index --editable .)
	@touch $@

# The files name versions and hashes only; where packages come from is each machine's own affair.
COMPILE = $(or $(UV),$(BIN)/uv) pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --custom-compile-command "make lock"

lock: $(if $(UV),,$(STAMP))  ## Rewrite the hash-pinned requirements (UPGRADE=1 takes newer versions)
	@$(COMPILE) $(if $(UPGRADE),--upgrade) -o requirements/runtime.txt >/dev/null
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev -c requirements/runtime.txt -o requirements/dev.txt >/dev/null
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --extra browser -c requirements/dev.txt -o requirements/browser.txt >/dev/null
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dspy --extra rlms -c requirements/dev.txt -o requirements/adapters.txt >/dev/null
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra stores -c requirements/dev.txt -o requirements/stores.txt >/dev/null
	@echo basedpyright | $(subst pyproject.toml,-,$(COMPILE)) $(if $(UPGRADE),--upgrade) -o requirements/types.txt >/dev/null
	@sed -i '1i # Written by "make lock", for "make verify-types".' requirements/types.txt
	@for f in $(LOCKS); do printf '# Written by "make lock" from pyproject.toml: change it there.\n%s\n' "$$(cat $$f)" >$$f.new \
		&& mv $$f.new $$f; done

clean:  ## Remove everything that make has made
	rm -rf $(VENV) .venv-3.* build dist .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
