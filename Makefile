# What can be done here: `make` alone tells. Only Go, make and git are needed; the tests on PostgreSQL need Docker too.

# The version of each tool that a target installs into .bin.
GOLANGCI_LINT_VERSION := v2.15.0
GOVULNCHECK_VERSION   := v1.9.0

# What latest.mod is about: the newest of everything a host may bring. `make latest` moves the two files on.
LATEST             := github.com/labstack/echo/v4 github.com/uptrace/bun github.com/uptrace/bun/dialect/pgdialect \
                      github.com/uptrace/bun/dialect/sqlitedialect modernc.org/sqlite
LATEST_INTEGRATION := $(LATEST) github.com/uptrace/bun/driver/pgdriver github.com/jackc/pgx/v5 github.com/mattn/go-sqlite3

# The modules of this repository, and those with a latest.mod: integration's tests the wakers with the newest drivers.
WAKERS         := bunstore/pgxwaker bunstore/pgdriverwaker
MODULES        := . $(WAKERS) docs/examples integration
MODULES_LATEST := . integration

BENCH    ?= .
FUZZ     ?= .
FUZZTIME ?= 30s

GO ?= go
# A workspace around this checkout would mix its modules, and knows no -modfile.
export GOWORK := off

# The race detector needs cgo. Where there is none the tests run all the same, and say so.
CGO  := $(shell $(GO) env CGO_ENABLED)
RACE := $(if $(filter 1,$(CGO)),-race)

# A linter refuses code for a newer Go than the one it was built with, so that tools are kept by both versions.
BIN           := $(CURDIR)/.bin/$(shell $(GO) env GOVERSION)
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOVULNCHECK   := $(BIN)/govulncheck-$(GOVULNCHECK_VERSION)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help: ## Tell what can be done here.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## Start the example application on 127.0.0.1:8080 (ADDR, DATABASE_URL, ADMIN_PASSWORD).
	@mkdir -p .bin && echo "building the example; the first time takes a minute or two"
	@cd docs/examples && $(GO) build -buildvcs=false -o ../../.bin/hostapp ./hostapp
	@exec .bin/hostapp

.PHONY: test
test: test-unit test-examples test-integration ## Run every test; those on PostgreSQL need Docker.

.PHONY: test-unit
test-unit: race-note ## Run the tests of the library itself: no Docker, on SQLite.
	$(GO) test $(RACE) -shuffle=on ./...
	@set -eu; for module in $(WAKERS); do (cd $$module && set -x && $(GO) test $(RACE) -shuffle=on ./...); done

.PHONY: test-examples
test-examples: race-note ## Run the tests of the programs in docs/examples.
	cd docs/examples && $(GO) test $(RACE) -shuffle=on ./...

.PHONY: test-integration
test-integration: race-note ## Run the tests on PostgreSQL, in Docker or at ROWLEASE_POSTGRES_DSN.
	cd integration && $(GO) test $(RACE) -count=1 -shuffle=on -timeout 30m ./...

.PHONY: test-latest
test-latest: ## Run the tests with the newest bun, echo and drivers (latest.mod).
	@echo "with:" && grep -hE '^[^/]*(github.com|modernc.org)/(labstack/echo|uptrace/bun|sqlite|mattn/go-sqlite3|jackc/pgx)[ /]' latest.mod integration/latest.mod | sort -u
	$(GO) test -modfile=latest.mod -shuffle=on ./...
	cd integration && $(GO) test -modfile=latest.mod -short -count=1 -shuffle=on -timeout 20m ./...

.PHONY: race-note
race-note:
	@$(if $(RACE),:,echo "note: no cgo here (no C compiler, or CGO_ENABLED=0): the tests run without the race detector")

.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp); those on PostgreSQL need Docker.
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...
	cd integration && $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m ./...

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME each, 30s by default (FUZZ=regexp).
	@GO='$(GO)' sh tools/fuzz.sh '$(FUZZ)' '$(FUZZTIME)'

.PHONY: cover
cover: ## Tell how much of each package the tests of the library run, into cover.out.
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
	@echo "line by line: go tool cover -html=cover.out"

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters, which also hold the arrows between the packages.
	@failed=0; for module in $(MODULES); do \
		echo "golangci-lint run ($$module)"; \
		(cd $$module && $(GOLANGCI_LINT) run --config '$(CURDIR)/.golangci.yml' ./...) || failed=1; \
	done; exit $$failed

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code.
	@set -eu; for module in $(MODULES); do \
		(cd $$module && $(GOLANGCI_LINT) fmt --config '$(CURDIR)/.golangci.yml' ./...); \
	done

.PHONY: tidy
tidy: ## Tidy every go.mod and latest.mod.
	@set -eu; for module in $(MODULES); do (cd $$module && set -x && $(GO) mod tidy); done
	@set -eu; for module in $(MODULES_LATEST); do (cd $$module && set -x && $(GO) mod tidy -modfile=latest.mod); done

.PHONY: check-tidy
check-tidy: ## Fail if `make tidy` would change anything.
	@set -eu; for module in $(MODULES); do (cd $$module && set -x && $(GO) mod tidy -diff); done
	@set -eu; for module in $(MODULES_LATEST); do (cd $$module && set -x && $(GO) mod tidy -modfile=latest.mod -diff); done

.PHONY: latest
latest: ## Make latest.mod anew, from go.mod and the newest bun, echo and drivers.
	cp go.mod latest.mod && cp go.sum latest.sum
	$(GO) get -modfile=latest.mod $(addsuffix @latest,$(LATEST))
	$(GO) mod tidy -modfile=latest.mod
	cd integration && cp go.mod latest.mod && cp go.sum latest.sum
	cd integration && $(GO) get -modfile=latest.mod $(addsuffix @latest,$(LATEST_INTEGRATION))
	cd integration && $(GO) mod tidy -modfile=latest.mod

.PHONY: deps
deps: ## Fail if a package imports, or the library requires, what it must not.
	@GO='$(GO)' sh tools/deps.sh

.PHONY: vuln
vuln: $(GOVULNCHECK) ## Look for known vulnerabilities; needs the vulnerability database, and so is no part of ci.
	@set -eu; for module in $(MODULES); do (cd $$module && set -x && $(GOVULNCHECK) -test ./...); done

.PHONY: ci
ci: lint check-tidy deps test test-latest ## Run all that must pass before a change lands.

# A tool is built apart from this module and its flags, and moved when it is whole.
$(GOLANGCI_LINT):
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION),golangci-lint)

$(GOVULNCHECK):
	$(call install,golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION),govulncheck)

define install
	@echo "installing $(1), once"
	@mkdir -p $(BIN)/new
	GOFLAGS= GOBIN=$(BIN)/new $(GO) install $(1)
	@mv $(BIN)/new/$(2) $@
endef
