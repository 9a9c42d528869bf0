# Everything that is done with this checkout. Each target is one script or one tool; none asks anything.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv lock images up demo down lint types unit component e2e chaos newest test bench generate clean

VENV ?= .venv
export VENV := $(abspath $(VENV))
# Named on the command line or in the environment: CLUSTER, KUBECONFIG (for CLUSTER=existing), IMAGE_REPOSITORY, TAG.
export CLUSTER IMAGE_REPOSITORY TAG
export PATH := $(VENV)/bin:$(PATH)
# Tests that share nothing: one process a core and one more, since many of them wait; a file's tests stay together.
parallel := --numprocesses $(shell echo $$(($$(nproc) + 1))) --dist loadfile
# Bash scripts; `shellcheck -a` follows them into what they source.
scripts := $(shell grep -rlE '^\#!.*bash' hack .ci)

help:  ## these lines
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1\t/' | expand -t 12
	@echo; echo 'CLUSTER=kind|devcluster|existing chooses the cluster (default: kind where Docker runs, else devcluster);'
	@echo 'existing takes KUBECONFIG=FILE and IMAGE_REPOSITORY=REPOSITORY. TAG=dev is the images'"'"' tag.'

venv:  ## the virtual environment, from locks/dev.txt
	@hack/venv

lock: venv  ## locks/*.txt anew, from pyproject.toml
	@hack/lock

images: venv  ## the images, into .cache/images
	@hack/images

up: venv  ## a cluster with the images in it
	@. hack/lib.sh; . hack/release.sh; ready_cluster; echo "export KUBECONFIG=$$KUBECONFIG"

demo: venv  ## a cluster, the release, and a first run
	@hack/demo

down:  ## removes the cluster that was made here; on an existing one, the release
	@hack/cluster down

lint: venv  ## style of Python and shell, imports between packages
	ruff check .
	ruff format --check .
	lint-imports
	shellcheck -x -a $(scripts)

types: venv  ## mypy, strict
	mypy
	mypy --strict hack/devcluster/netpol
	MYPYPATH=sandbox_image/mcp_exec_sandbox/sdk mypy -p servers  # apart: `client` is a module of the sandbox by that name

unit: venv  ## tests inside one process: no cluster, no network, no other process
	pytest $(parallel) tests/unit

component: venv  ## tests of processes and scripts against fakes of their neighbours
	pytest $(parallel) tests/component

e2e: venv  ## tests on a real cluster
	@hack/e2e

chaos: venv  ## ten minutes of failures under load, on devcluster
	@MCP_EXEC_CHAOS_SECONDS=$${MCP_EXEC_CHAOS_SECONDS:-600} hack/e2e

newest: venv  ## tests of the CRDs on the newest Kubernetes' API server for custom resources, CEL rules included
	@hack/newest

test: lint types unit component e2e  ## what CI runs: lint, types, unit, component, e2e

bench: venv  ## latency, API writes, a burst and a steady load, on a real cluster
	@hack/bench

generate: venv  ## CRDs and what else is generated
	python -m mcp_exec_api
	python hack/chart
	python -m mcp_exec_client servers generate --from-file servers/catalogs/*.json --out servers

clean:  ## removes what was built in this checkout; the cache, the cluster and the virtual environment stay
	rm -rf build .cache/images .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
