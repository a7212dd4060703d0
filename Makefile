# `make train` and `make test` do all the set-up they need. `make help` lists the rest.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# pip would compile on one core. Files that do not compile are none that anybody imports, and no reason to stop.
COMPILE := $(BIN)/python -m compileall -q -j 0 .venv/lib msrl
export PIP_NO_WARN_CONFLICTS = 1

.PHONY: help train test check verify learn bench peers soak stops clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

train: .venv/core  ## train PPO on CartPole with a live display, then play 100 episodes
	$(BIN)/msrl train ppo --env CartPole-v1

test: .venv/dev  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/dev  ## lint, types of the compiler parts, the architecture test
	$(BIN)/ruff check .
	$(BIN)/mypy msrl/errors.py msrl/tracebacks.py msrl/synonyms.py msrl/loading.py msrl/ir msrl/frontend msrl/distribution msrl/passes msrl/deployment.py msrl/feasibility.py msrl/projection
	$(BIN)/python -m pytest -q tests/test_architecture.py

verify: .venv/dev  ## the same bits under every synchronous distribution, backend and number of instances
	@set -e; for learners in 1 4; do \
	  for each in ppo:CartPole-v1 dqn:CartPole-v1 sac:Pendulum-v1 mappo:simple_spread a2c:CartPole-v1; do \
	    $(BIN)/msrl verify $${each%%:*} --env $${each#*:} --learner-shards $$learners --instances 1 2 4 \
	      --backends inline threads ray; echo; \
	  done; done
	$(BIN)/msrl verify mappo --env simple_spread --agent-shards 3 --instances 1 2 3 --backends inline threads ray

learn: .venv/dev  ## the learning bars, three seeds each, in one place and spread out (some hours on two cores)
	$(BIN)/python -m benchmarks.learn --spread local async coarse fine multi
	XLA_FLAGS=--xla_force_host_platform_device_count=4 PJRT_NPROC=8 $(BIN)/python -m benchmarks.learn --spread devices

bench: .venv/dev  ## speed against peers, as ratios measured in one run (some two hours on two cores)
	-$(MAKE) --no-print-directory peers
	$(BIN)/python -m benchmarks.all --docs

peers: .venv-peers/done  ## the environment of the libraries that `make bench` compares with (2 GB)

MINUTES ?= 30
soak: .venv/dev  ## runs with faults at random points, MINUTES=30 on each backend: they finish, learn and leave nothing behind
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

TRIES ?= 30
stops: .venv/dev  ## signals at random moments, TRIES=30 on each backend and distribution: runs end well and can be resumed (some hours)
	$(BIN)/python -m benchmarks.stops --tries $(TRIES)

clean:  ## forget the environment and all caches
	rm -rf .venv .venv-peers build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

.venv/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "msrl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/pip pyproject.toml constraints.txt
	$(INSTALL) --editable .
	-@$(COMPILE) > /dev/null
	@touch $@

.venv/dev: .venv/pip pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	-@$(COMPILE) > /dev/null
	@touch $@ .venv/core

.venv-peers/done: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@
