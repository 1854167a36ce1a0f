# Every target works from a clean clone with nothing typed before it; it needs Python >= 3.11, make and gcc.
#
#   make demo     the quick start notebook, run here without a browser, with live progress lines
#   make lab      the same notebook in JupyterLab
#   make test     the tests; ARGS="-k magics" chooses some
#   make test-long  what takes longer: more variants, many repetitions; TORCH=1 installs PyTorch and compares with it
#   make test-proof  campaigns of faults and endings, and whole measurements, in about an hour
#   make budget-proof  200 trials of random caps and faults (TRIALS=, SEED=): what a run's processes have lived never costs more
#   make soak     one long run, whose processes' memory stays flat (MINUTES=30)
#   make chaos    hundreds of faults in real processes, in about an hour: writes its report into docs/reliability.md
#   make model    the model of the protocol, docs/protocol, checked by spin
#   make check    format, lint and types
#   make docs     the documentation as a site, in build/site
#   make bench    the benchmarks, with their peers, in about two hours: benchmarks/RESULTS.md, and the README's figures;
#                 ARGS="--resume" goes on after an interruption, ARGS="--only step" or ARGS="--quick" do less
#   make wheel    wheels for Linux on x86-64 and aarch64, in dist/; make wheel-again: built twice, they are the same
#   make test-arm  the kernels' tests on the aarch64 wheel, its processor emulated by qemu-user: on Debian, some six minutes
#   make clean    remove all that these targets made
#
# MLLESS_DATA_HOME=<folder> says where datasets lie; by default they are downloaded to the user's cache.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PACKED := setup.cfg pyproject.toml
KERNELS := setup.py constraints.txt $(wildcard kernels/*.pyx kernels/*.h)
WHEEL_TOOLS := build/wheel-tools
DIST ?= dist
ARM := build/aarch64
ARM_PYTHON := $(ARM)/usr/bin/python
ARM_PIP := $(WHEEL_TOOLS)/bin/python -m pip --disable-pip-version-check --quiet --python $(ARM_PYTHON)
ARM_INSTALL := $(ARM_PIP) install --root-user-action ignore --only-binary :all: --upgrade \
  --target $(ARM)/usr/lib/python3/dist-packages
FUNCTION_SET := build/function-set/.fetched
LOCKS := mlless_nb/clouds/function_set.txt mlless_nb/clouds/container_set.txt

# Two processes run the tests, a file at a time each: a small machine has two cores, and a run in a test several processes.
# One that crashed is not started again, with the same test: the other one goes on.
TEST_JOBS ?= -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Containers often forbid bytecode. Without it each of the many processes that tests and runs start compiles some 800 modules anew.
export PYTHONDONTWRITEBYTECODE :=

# rabbitmq-server lies in /usr/sbin, which is not on everybody's PATH.
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: demo lab test torch test-long test-proof budget-proof soak chaos model check docs bench clean services spin wheel wheel-again \
  test-arm
.DELETE_ON_ERROR:

demo: $(VENV)/.installed-demo
	@cd notebooks && ../$(BIN)/python run.py 01_quickstart.ipynb ../out

lab: $(VENV)/.installed-lab
	@cd notebooks && ../$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) 01_quickstart.ipynb

test: $(VENV)/.installed-test $(FUNCTION_SET) services
	@$(BIN)/pytest $(TEST_JOBS) $(ARGS)

test-long: $(VENV)/.installed-test $(VENV)/.docs $(FUNCTION_SET) services spin $(if $(TORCH),torch)
	@$(BIN)/pytest $(TEST_JOBS) -m "long or torch" $(ARGS)

torch: $(VENV)/.installed-test
	@echo "installing PyTorch"
	@$(PIP) install torch==2.13.0

test-proof: $(VENV)/.installed-test $(FUNCTION_SET) services $(if $(TORCH),torch)
	@$(BIN)/pytest $(TEST_JOBS) -m proof $(ARGS)

budget-proof: $(VENV)/.installed-test services
	@$(BIN)/python tests/budget/proof.py $(if $(TRIALS),--trials $(TRIALS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(VENV)/.installed-test
	@$(BIN)/python tests/budget/soak.py $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

chaos: $(VENV)/.installed-test services
	@$(BIN)/pytest tests/chaos/campaign.py -n 0 -s -q --no-header $(ARGS)

model: $(VENV)/.installed-test spin
	@$(BIN)/pytest tests/protocol -n 0 -m long -q $(ARGS)

check: $(VENV)/.installed-test
	@.ci/check $(BIN)

# A reader of this folder needs no network, and neither does the making once the packages are installed.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the documentation: $(abspath build/site/index.html)"

# MkDocs reads the package's sources and does not import it.
$(VENV)/.docs: $(VENV)/.made setup.cfg
	@echo "installing MkDocs into $(VENV)"
	@$(BIN)/python -c 'import configparser as c; p = c.ConfigParser(); p.read("setup.cfg"); print(p["options.extras_require"]["docs"])' \
	  | $(PIP) install --no-compile -r /dev/stdin
	@touch $@

bench: $(VENV)/.peers $(VENV)/.installed-test $(FUNCTION_SET) services
	@$(BIN)/python benchmarks/results.py $(ARGS)

$(VENV)/.peers: $(VENV)/.installed-demo setup.cfg benchmarks/peers.py
	@echo "installing the peers of the benchmarks into $(VENV): PyTorch and others, as far as they are to be had"
	@$(BIN)/python benchmarks/peers.py
	@touch $@

# Programs that the tests start on free loopback ports in temporary folders; the system's own services are not used.
# What cannot be installed here is skipped with the reason by the tests (and fails them where CI=true).
services:
	@{ command -v redis-server || command -v valkey-server; } > /dev/null || .ci/apt-install redis-server || true
	@{ command -v rabbitmq-server; } > /dev/null || .ci/apt-install rabbitmq-server || true
	@{ command -v memcached; } > /dev/null || .ci/apt-install memcached || true
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } > /dev/null || .ci/apt-install chromium || true

spin:
	@command -v spin > /dev/null || .ci/apt-install spin || true

# The kernels are compiled once for all targets, while pip installs what the package needs: an editable install would
# compile them each time, and from nothing.
$(VENV)/.installed-%: $(VENV)/.made $(PACKED) $(KERNELS)
	@echo "installing mlless_nb[$*] into $(VENV), and compiling its kernels: about a minute the first time"
	@$(MAKE) --no-print-directory -j2 $(VENV)/.kernels $(VENV)/.packages-$*
	@touch $@

$(VENV)/.packages-%: $(PACKED)
	@MLLESS_WITHOUT_KERNELS=1 $(PIP) install --no-compile --editable '.[$*]'
	@touch $@

$(VENV)/.kernels: $(VENV)/.compiler $(KERNELS)
	@$(VENV)/compiler/bin/python setup.py --quiet build_ext --inplace > build/kernels.log 2>&1 || { cat build/kernels.log >&2; exit 1; }
	@touch $@

# Cython and setuptools in a place of their own: pip is at work in the other.
$(VENV)/.compiler: $(VENV)/.made constraints.txt
	@mkdir -p build
	@$(BIN)/python -m venv --without-pip $(VENV)/compiler
	@sed -n '/^cython==/,/[^\\]$$/p; /^setuptools==/,/[^\\]$$/p' constraints.txt > build/compiler.txt
	@$(PIP) --python $(VENV)/compiler/bin/python install --no-compile --require-hashes -r build/compiler.txt
	@touch $@

# The packages of cloud functions, for tests that build a layer: they reach no index themselves.
$(FUNCTION_SET): $(VENV)/.made $(LOCKS)
	@mkdir -p build/function-set
	@$(PIP) download --no-deps --only-binary :all: --require-hashes --dest build/function-set $(addprefix -r ,$(LOCKS))
	@touch $@

wheel: $(WHEEL_TOOLS)/.made
	@.ci/wheel $(WHEEL_TOOLS)/bin $(DIST) $(ARCH)

wheel-again: $(WHEEL_TOOLS)/.made
	@.ci/wheel $(WHEEL_TOOLS)/bin $(DIST) $(ARCH)
	@.ci/wheel $(WHEEL_TOOLS)/bin build/dist-again $(ARCH)
	@cd build/dist-again && for wheel in *.whl; do cmp "$$wheel" "$(abspath $(DIST))/$$wheel" && echo "the same again: $$wheel" || exit 1; done

# The emulated Python judges whether the wheel is one for it. -P: nothing is imported from the checkout.
test-arm: $(ARM)/.made
	@rm -rf $(ARM)/dist
	@.ci/wheel $(WHEEL_TOOLS)/bin $(ARM)/dist aarch64
	@$(ARM_INSTALL) --no-deps $(ARM)/dist/*.whl
	@$(ARM_PYTHON) -P -m pytest -m "not proof" tests/kernels $(ARGS)

$(ARM)/.made: $(WHEEL_TOOLS)/.made .ci/emulated-python tests/kernels/requirements.txt
	@echo "making $(ARM): Python for aarch64, emulated"
	@.ci/emulated-python $$($(WHEEL_TOOLS)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])') $(ARM)
	@$(ARM_INSTALL) -r tests/kernels/requirements.txt
	@touch $@

$(WHEEL_TOOLS)/.made: constraints.txt
	@.ci/make-venv $(PYTHON) $(WHEEL_TOOLS)
	@$(WHEEL_TOOLS)/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: --require-hashes -r constraints.txt
	@touch $@

$(VENV)/.made:
	@.ci/make-venv $(PYTHON) $(VENV)
	@touch $@

# .venv with it: its marks would say that what is removed here is installed.
clean:
	rm -rf build dist out *.egg-info $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f kernels/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
