# nplbridge: `make help` lists what there is.
export GOTOOLCHAIN := local

BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/nplbridge/nplbridge/cmd/internal/buildinfo.version=$(VERSION)
ARGS    ?=
LAB     ?=
BASE    ?= scratch
DIST    ?= $(BIN)
MANIFESTS ?= $(BIN)/nplbridge.yaml
CHART   ?= charts/nplbridge
VALUES  ?=
HELM    := go tool -modfile=.ci/tools/helm/go.mod helm

.DEFAULT_GOAL := help
.PHONY: help deps build images manifests chart test test-fast lint generate demo kind bench bench-control bench-compare bench-dataplane chaos kubectl clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing (apt as root or sudo -n), or print the line that does
	@.ci/deps

build: ## build npl-agent and lbsync into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/npl-agent ./cmd/lbsync

images: ## build the container images into bin/images, without engine or registry; BASE=scratch or an image
	@go -C .ci/tools/images run . -root $(CURDIR) -output $(abspath $(BIN))/images -version $(VERSION) -base $(BASE)

manifests: ## write the install in one file, bin/nplbridge.yaml; VALUES='--set serviceType=NodePort'
	@mkdir -p $(dir $(MANIFESTS))
	@.ci/manifests '$(HELM)' $(CHART) $(VALUES) >$(MANIFESTS)

chart: ## pack the chart into bin/; with VERSION=v1.2.3 it has that version, and installs the images of it
	@mkdir -p $(DIST)
	@$(HELM) package charts/nplbridge --destination $(DIST) $(if $(filter v%,$(VERSION)),--version $(VERSION:v%=%) --app-version $(VERSION:v%=%))

test: deps ## everything .ci runs: vet, unit tests with -race, the lab's stories as root and rootless, docs
	@go run ./.ci/stages

test-fast: ## the inner loop: vet and unit tests without race detector, no lab
	@go run ./.ci/stages -fast

lint: ## golangci-lint, and go mod tidy in every module
	@go run ./.ci/stages -lint

generate: ## write the files that are generated from code (docs/reference)
	go test ./cmd/npl-agent ./cmd/lbsync -run Docs -update
	go test ./e2e/cases -run Page -update
	UPDATE=1 go test ./e2e/chart/manifests -run README

demo: deps ## the main job on real parts, PROVIDER=haproxy, avi or bigip; ONESHOT=1 tears down and exits by its checks
	@go build -o $(BIN)/ ./e2e/cmd/demo && exec $(BIN)/demo

kind: ## the demo's checks in a kind cluster of its own, on a machine with Docker and a registry; ARGS=--help
	@go run ./e2e/kind $(ARGS)

bench: deps ## measure, print and never fail on a number: in the lab, then the packages
	go run ./e2e/cmd/bench
	go test -run '^$$' -bench . -benchmem ./agent/... ./lbsync/internal/... ./providers/...

bench-control: deps ## from Ready to the first request and from deletion to the last, and what grows with the cluster; ARGS='--rates 1,10'
	go run ./e2e/cmd/bench --only control,scale,haproxy-memory $(ARGS)

bench-compare: ## allocations of the pure packages, and how they grow, against a commit; BASE=HEAD~1
	@go run ./e2e/compare -base $(if $(filter scratch,$(BASE)),HEAD~1,$(BASE)) $(ARGS)

bench-dataplane: deps ## NodePort, NodePortLocal and Pod addresses side by side; writes docs/explanation/nodeport.md, ARGS='--rounds 6'
	@mkdir -p $(BIN) && go build -o $(BIN)/ ./e2e/cmd/paths && $(BIN)/paths $(ARGS)

chaos: deps ## break everything in the lab while clients check every answer, DURATION=20m SEED=7; ARGS=--script=...
	@go run ./e2e/cmd/chaos $(if $(SEED),--seed=$(SEED)) $(if $(DURATION),--duration=$(DURATION)) $(ARGS)

kubectl: ## talk to the running lab: make kubectl ARGS='get pods -A' (LAB=name where several run)
	@go run ./e2e/cmd/lab kubectl $(if $(LAB),--name $(LAB)) -- $(ARGS)

clean: ## remove what was built here; the lab's cache outside the tree stays
	rm -rf $(BIN)
