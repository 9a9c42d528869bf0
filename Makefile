# All tasks of this checkout. Each target is one script or one tool and runs unattended.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv lock images data-image push up demo examples frameworks live down lint fmt types unit component clients browser coverage kills docs wheel release mirror installs fuzz e2e long upgrade chaos boards cpython newest test bench bench-smoke pace generate clean

VENV ?= .venv
export VENV := $(abspath $(VENV))
# Set on the command line or in the environment: CLUSTER, KUBECONFIG (for CLUSTER=existing), IMAGE_REPOSITORY, TAG,
# IMAGES_LOADED, IDENTITY, KIND_CLUSTER_NAME, KUBERNETES_BINARIES, ONLY, WITHOUT.
export CLUSTER IMAGE_REPOSITORY TAG IMAGES_LOADED IDENTITY KUBERNETES_BINARIES ONLY WITHOUT
export PATH := $(VENV)/bin:$(PATH)
# Compiled modules are kept, whatever the environment says: else each process of the tests compiles them again.
unexport PYTHONDONTWRITEBYTECODE
# Tests are independent; a file's tests stay together. Unit tests compute; component tests wait two thirds of their time,
# unless their coverage is measured.
cores := $(shell getconf _NPROCESSORS_ONLN)
computing := --numprocesses $(shell echo $$(($(cores) + 1))) --dist loadfile
waiting := --numprocesses $(shell echo $$((3 * $(cores)))) --dist loadfile
# MEASURED=yes measures the coverage of unit and component tests, also of processes that they start. It doubles their CPU.
measured := $(if $(MEASURED),--cov --cov-report= --cov-fail-under=0)
# Bash scripts; `shellcheck -a` also checks what they source, unless its name is computed.
scripts := $(shell grep -rlI '^.!.*bash' hack .ci) $(wildcard hack/providers/*.sh)

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo 'CLUSTER=kind|devcluster|existing chooses the cluster. Default: the one that `make up` made; kind if Docker runs'
	@echo 'and has 4 GiB of memory; devcluster on Debian 12 (x86-64) as root. existing takes KUBECONFIG=FILE, and either'
	@echo 'IMAGE_REPOSITORY=REPOSITORY after `make push`, or IMAGES_LOADED=yes. TAG=dev is the images'"'"' tag.'
	@echo 'KUBERNETES_BINARIES=DIR gives devcluster another Kubernetes than Debian 12'"'"'s (hack/devcluster/README.md).'

venv:  ## create the virtual environment from locks/dev.txt
	@hack/venv

lock: venv  ## resolve pyproject.toml and write locks/*.txt; UPGRADE=yes takes the newest versions
	@hack/lock $(if $(UPGRADE),--upgrade)

images: venv  ## build the images into .cache/images; LANGUAGE=typescript also builds that of sandboxes for TypeScript
	@hack/images

data-image: venv  ## build the image of pools with libraries for data; no other target needs it
	@hack/images data

push: venv  ## build the images and push them to IMAGE_REPOSITORY (or REGISTRY)
	@IMAGE_REPOSITORY=$${IMAGE_REPOSITORY:-$${REGISTRY:-}} hack/push

up: venv  ## create a cluster and load the images
	@set -euo pipefail; . hack/lib.sh; . hack/release.sh; ready_cluster; echo "export KUBECONFIG=$$KUBECONFIG"

demo:  ## create a cluster, install the release and run an example; IDENTITY=yes adds a provider where people sign in, LANGUAGE=typescript a pool for TypeScript
	@hack/demo

examples: venv  ## run the tasks of examples/tasks on the release, and print what each saved; TASK=03 runs one
	@hack/examples $(TASK)

frameworks: venv  ## run the examples of frameworks, each with its real package, on the release
	@hack/frameworks

live: venv  ## run the tasks of bench/tokens.py with a real model, by its key and for its price; OPTIONS=--write
	@hack/live $(OPTIONS)

down:  ## delete the cluster, or on an existing cluster the release
	@hack/cluster down

lint: venv  ## style of Python, shell and prose, imports between packages
	ruff check .
	ruff format --check .
	python hack/prose
	lint-imports
	shellcheck -x -a $(scripts)

fmt: venv  ## format Python, and mend what the linter can
	ruff check --fix .
	ruff format .

types: venv  ## mypy and the compiler of TypeScript, strict
	mypy
	mypy --strict hack/netpol
	mypy --strict -p hack.accounts -p hack.chart -p hack.monitoring -p hack.python_values -p hack.reference -p hack.site -p hack.artifacts -p hack.ci -m hack.openapi -m hack.typescript_client -m hack.new_release -m hack.identity_provider
	rm -rf build/wrappers
	python -m mcp_exec_client servers generate --from-file servers/catalogs/*.json --out build/wrappers
	MYPYPATH=build:sandbox_image/mcp_exec_sandbox/sdk mypy -p wrappers  # apart: they import the sandbox's `client`
	hack/typescript-client check

unit: venv  ## run the tests of code inside one process: no cluster, no network
	pytest $(computing) $(measured) tests/unit

component: venv  ## run the tests of processes and scripts against fakes of their neighbours
	@hack/postgresql
	@hack/squid
	@hack/conformance
	@hack/schemas >/dev/null
	@hack/identity >/dev/null
	@hack/typescript-runner
	@hack/typescript-client >/dev/null
	@hack/docs
	@hack/tools nginx envoy >/dev/null || true  # without them, which only Debian has, tests of front doors are skipped
	pytest $(if $(measured),$(computing) $(measured) --cov-append,$(waiting)) -m 'not kills' tests/component

clients: venv  ## 50 quick calls by each MCP client of others, which are installed first, and a table of them
	@hack/clients
	pytest tests/clients

browser: venv  ## test the page of examples/chat_app, artifacts and the documentation site in Chromium, which is installed first on Debian
	@hack/browser

coverage: venv  ## run unit and component tests, and check their branch coverage
	@MEASURED=yes hack/stages unit component
	coverage report --show-missing

kills: venv  ## kill the operator at each of its steps, and every one to five seconds while 200 executions run
	pytest $(waiting) -k kill tests/component/operator
	@MCP_EXEC_LONG=yes MCP_EXEC_KILLED_EXECUTIONS=$${MCP_EXEC_KILLED_EXECUTIONS:-200} hack/e2e -k test_operator_kills

docs: venv  ## build the documentation site in build/site, strictly
	@hack/docs

wheel:  ## build the wheels mcp-exec and mcp-exec-client in build/, for pip install
	rm -f build/*.whl
	hack/wheels build

release: venv  ## make the release VERSION=x.y.z: tests, changelog, tag, artifacts; REGISTRY=REGISTRY/PATH pushes images and chart
	@python -m hack.new_release $(VERSION) $(if $(BUILT),--built) $(if $(filter undefined,$(origin CHECKS)),,--checks '$(CHECKS)') $(if $(BUILD),--build '$(BUILD)') $(if $(REGISTRY),--registry $(REGISTRY))

mirror:  ## copy the release VERSION=x.y.z with its signatures: FROM=REGISTRY/PATH TO=REGISTRY/PATH, or a folder
	@FROM=$(FROM) TO=$(TO) VERSION=$(VERSION) hack/mirror

installs: venv  ## install the wheel by pip with each extra of the client into an empty environment
	pytest $(computing) tests/install

fuzz: venv  ## run the fuzzers with 50 times the examples of CI; TESTS=FOLDER chooses
	MCP_EXEC_FUZZ_FACTOR=$${MCP_EXEC_FUZZ_FACTOR:-50} pytest $(computing) --timeout=3600 -m fuzz $(or $(TESTS),tests/unit tests/component)

e2e: venv  ## run the tests on a real cluster; ONLY=pools,admission,... or WITHOUT=... chooses files and folders of tests/e2e
	@hack/e2e

long: venv  ## run the end-to-end tests that `make e2e` leaves out: restarts under load, kills, uninstallations
	@MCP_EXEC_LONG=yes hack/e2e

upgrade: venv  ## upgrade the release before to this checkout under load, and roll back, on a cluster without a release
	@hack/upgrade

chaos: venv  ## inject failures under load for ten minutes, on devcluster
	@MCP_EXEC_CHAOS_SECONDS=$${MCP_EXEC_CHAOS_SECONDS:-600} hack/e2e

boards: venv  ## scrape a run by Prometheus, check the queries of all boards and draw them in build/boards
	@MCP_EXEC_BOARDS=yes hack/e2e

cpython: venv  ## run CPython's own tests inside runs and in child processes of runs, and compare; MODULES='test_sys ...' chooses
	@hack/cpython/compare $(MODULES)

newest: venv  ## run the tests of `make e2e` on a devcluster of another Kubernetes: KUBERNETES_BINARIES=DIR has its executables; ONLY as there
	@set -euo pipefail; : "$${KUBERNETES_BINARIES:?is not set: hack/devcluster/README.md says what the folder holds}"; CLUSTER=devcluster hack/e2e

test: venv  ## run all tests, and print the time of each stage; MEASURED=yes also checks the branch coverage
	@hack/stages lint types $(if $(MEASURED),coverage,unit component) e2e

bench: venv  ## measure everything on a real cluster, and compare with docs/internals/performance.md; ONLY=latency,...
	@hack/bench $(if $(ONLY),--only $(ONLY)) $(if $(filter yes,$(RECORD)),--record)

bench-smoke: venv  ## run each program of bench/ with its smallest arguments; ONLY=latency,... chooses
	@hack/bench --smoke $(if $(ONLY),--only $(ONLY))

pace: venv  ## compare processor time and writes of an execution with the release before, on KUBERNETES_BINARIES=DIR
	@hack/pace

generate: venv  ## write all generated files: CRDs, chart, boards, the page of values, openapi.json, the TypeScript client's types, wrappers
	python -m mcp_exec_api
	python -m hack.chart
	python -m hack.monitoring
	python -m hack.python_values
	python -m hack.openapi
	python -m hack.typescript_client
	hack/typescript-client generate
	python -m hack.reference
	hack/catalogs
	python -m mcp_exec_client servers generate --from-file servers/catalogs/*.json --out servers

clean:  ## remove build output; keep the cache, the cluster and the virtual environment
	rm -rf build .cache/images .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
