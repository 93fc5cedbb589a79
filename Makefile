# Everything is done by the scripts in tools/; each sets up what it needs. `make help` lists the targets.
.DEFAULT_GOAL := help
PREFIX ?= /usr/local
.PHONY: help build install demo test test-quick test-nvrtc test-gpu bench bench-cpu bench-shapes \
	release-cubins wheel wheels format lint clean
PYTHON = $$(cat build/python)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

# Without a GPU nobody waits for the CUDA compiler here; `make test` compiles every kernel all the same.
build: ## build/tenon (the command) and build/libtenon.so (the library)
	@tools/setup.sh build
	@nvidia-smi -L >/dev/null 2>&1 || export TENON_CUDA_ARCHS=$${TENON_CUDA_ARCHS:-none}; \
	tools/build.sh release libtenon.so libtenon_tensorflow.so tenon_cli

install: build ## library, headers, command, pkg-config and CMake files into PREFIX (/usr/local); DESTDIR for packages
	@tools/build.sh release libtenon.a
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

demo: build ## every operator in every framework found here, checked and timed; a model trained on digits
	@tools/setup.sh demo
	@PYTHONPATH=python $(PYTHON) examples/demo.py

# A warning is an error, of gcc in build/ and of clang in build/asan. Once set, build/ keeps it.
test lint: export TENON_WERROR = ON

# Nobody runs device code without a GPU: tests only see that it compiles. Kept in build/ likewise.
test test-quick test-nvrtc lint: export TENON_QUICK_CUBINS = $(shell nvidia-smi -L >/dev/null 2>&1 || echo ON)
build test-gpu: export TENON_QUICK_CUBINS = OFF

test: ## everything: unit, operator, framework, sanitizer, fuzz, NVRTC and documentation tests, and lint
	@tools/setup.sh build python docs fuzz cubins lint tensorflow -- tools/build.sh release asan tsan
	@$(PYTHON) tools/test.py

test-quick: ## the parts that a change is tried with: build, unit, check, python
	@tools/setup.sh build python -- tools/build.sh release
	@$(PYTHON) tools/test.py build unit check python

test-nvrtc: ## NVRTC compiles all formulas of the tests and of the table, and 150 random ones
	@tools/setup.sh build python cubins -- tools/build.sh release
	@$(PYTHON) tools/test.py nvrtc

test-gpu: ## the tests that need an NVIDIA GPU; OPS=softmax,sum, CHANGED=main or PART=1/3 choose some of them
	@nvidia-smi -L >/dev/null 2>&1 || { echo "make test-gpu: this machine has no NVIDIA GPU (nvidia-smi finds none)"; exit 1; }
	@tools/setup.sh build python
	@tools/build.sh release
	@$(PYTHON) tools/test.py --gpu $(OPS:%=--ops %) $(CHANGED:%=--changed %) $(PART:%=--part %)

bench: build ## speed on the GPU against PyTorch and jax.jit; writes bench/results
	@tools/setup.sh python
	@PYTHONPATH=python $(PYTHON) bench/gpu.py
	@PYTHONPATH=python $(PYTHON) bench/operators.py --device cuda
	@PYTHONPATH=python $(PYTHON) bench/formulas.py --device cuda
	@PYTHONPATH=python $(PYTHON) bench/compiled.py --device cuda
	@PYTHONPATH=python $(PYTHON) bench/own_kernel.py
	@PYTHONPATH=python $(PYTHON) bench/family.py
	@if $(PYTHON) -c 'import jax; jax.devices("cuda")' 2>/dev/null; then \
		PYTHONPATH=python $(PYTHON) bench/jax_operators.py --device cuda; \
	else echo "left out: JAX, which is not here, or finds no GPU"; fi

bench-cpu: build ## the same on the CPU: operators and formulas with 1 and 2 threads, and the time of calls
	@tools/setup.sh python
	@PYTHONPATH=python $(PYTHON) bench/run.py
	@PYTHONPATH=python $(PYTHON) bench/operators.py --part calls
	@PYTHONPATH=python $(PYTHON) bench/formulas.py --device cpu
	@PYTHONPATH=python $(PYTHON) bench/compiled.py --device cpu
	@if $(PYTHON) -c 'import jax' 2>/dev/null; then PYTHONPATH=python $(PYTHON) bench/jax_operators.py --device cpu; \
	else echo "left out: JAX, which is not here"; fi

bench-shapes: build ## shapes drawn anew: the worst first, against the copy and PyTorch; ARGS="--seed 1 --cells 50" and others
	@tools/setup.sh python
	@PYTHONPATH=python $(PYTHON) bench/shapes.py \
		$$(nvidia-smi -L >/dev/null 2>&1 || echo --device cpu) $(ARGS)

release-cubins: ## device code for a release, by NVRTC 12, into build/release-cubins
	@tools/setup.sh cubins
	@.venv/bin/python tools/release_cubins.py

wheel: ## dist/tenon-….whl: library, device code, command, headers and Python; ARCH=aarch64|x86_64: for that processor
	@tools/setup.sh build cubins $(if $(ARCH),cross)
	@.venv/bin/python tools/make_wheel.py $(ARCH:%=--arch %)

wheels: ## both wheels; the one that is for another processor is tried in an emulator
	@tools/setup.sh build cubins cross
	@.venv/bin/python tools/make_wheel.py --arch x86_64 --arch aarch64
	@.venv/bin/python -m pytest -q -p no:cacheprovider tests/test_cross_wheel.py

format: ## clang-format and ruff format over the tree
	@tools/setup.sh lint
	@.venv/bin/python tools/lint.py --fix

lint: ## form, clang-tidy, warnings of gcc and clang, headers, ruff, mypy
	@tools/setup.sh build python fuzz lint -- tools/build.sh release asan
	@$(PYTHON) tools/test.py lint

clean: ## removes build/ (the Python environment in .venv stays)
	@rm -rf build
