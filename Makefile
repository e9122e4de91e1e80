# SPDX-License-Identifier: BSD-2-Clause
# The few commands that everybody needs; meson does the building (tools/build.sh).

# make's own default is cc; a CC from the command line or the environment is respected.
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
WERROR ?= false
export CC PREFIX WERROR

.DEFAULT_GOAL := all
.PHONY: all demo check bench soak debug asan tsan install clean help

all: ## build uvhostd (release) in build/
	@tools/build.sh release

demo: ## install what the demo needs, build, and show uvhostd at work
	@tools/deps.sh demo
	@tools/build.sh release
	@tools/demo.sh

check: ## install what the tests need, build with gcc, run all tests
	@tools/deps.sh test
	@tools/build.sh gcc
	@meson test -C build-gcc --no-rebuild --print-errorlogs

bench: ## run the benchmark book
	@tools/deps.sh bench
	@tools/build.sh release
	@bench/run

soak: ## run the live suites for SOAK_MINUTES (60) under the address sanitizer
	@tools/deps.sh test
	@test/soak.sh

debug: ## build without optimisation in build-debug/
	@tools/build.sh debug

asan: ## build with the address and undefined-behaviour sanitizers in build-asan/
	@tools/build.sh asan

tsan: ## build with the thread sanitizer in build-tsan/
	@tools/build.sh tsan

install: all ## install below PREFIX (/usr/local), staged in DESTDIR if set
	@tools/install.sh

clean: ## remove every build folder
	@rm -rf build build-*/

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 16
