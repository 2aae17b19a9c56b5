# The front door. `make demo` and `make test` do everything, installs included.
.PHONY: demo build test quick-test format deps clean gpu-test help

help:
	@echo "make demo    build and show: this machine, the optimizers, a check, benches, a race of six optimizers, report.html"
	@echo "make build   build/release/gallop"
	@echo "make test    everything CI runs: tests, checks, sanitizers, fuzzing, cross-build, install, format"
	@echo "make quick-test   the unit tests alone"
	@echo "make gpu-test     what needs a GPU, from the build that is there"

demo: build
	@scripts/demo.sh

build: deps
	@cmake --preset release >build-release.log 2>&1 || { cat build-release.log; exit 1; }
	@sed -n 's/^-- no CUDA/no CUDA/p' build-release.log; rm -f build-release.log
	@cmake --build --preset release

quick-test: build
	@ctest --preset release -L unit

test: deps
	@scripts/test.sh

format:
	@scripts/format.sh --fix

deps:
	@scripts/install-deps.sh

gpu-test:
	@scripts/gpu-test.sh

clean:
	rm -rf build
