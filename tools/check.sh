#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Everything that CI checks, cheap steps first; stops at the first that fails.
# Usage: tools/check.sh [--list | STEP...]    without a STEP: all of them
set -euo pipefail
cd "$(dirname "$0")/.."

steps=(format layers sizes spdx headers cppcheck tidy gcc instructions clang asan tsan)
jobs=2
logs=$(mktemp -d)

# The C files below the folders that exist, as a list that ends in NUL.
c_files() {
	local dir
	for dir in src cmd include test bench; do
		[ ! -d "$dir" ] || find "$dir" -name '*.[ch]' -print0
	done | sort -z
}

# Our own files, as far as git does not ignore them; in a tree without git, all but the builds.
own_files() {
	git ls-files --cached --others --exclude-standard 2>/dev/null ||
		find . -path './build*' -prune -o -type f -printf '%P\n'
}

# Show the output of a command only when it fails.
quietly() {
	if ! "$@" >"$logs/output" 2>&1; then
		cat "$logs/output"
		return 1
	fi
}

step_format() { # clang-format, as .clang-format says
	c_files | xargs -0r clang-format --dry-run -Werror
}

step_layers() { # no folder includes a higher one
	tools/layers.py
}

step_sizes() { # functions, files and parameter lists
	tools/house.py
}

step_spdx() { # a licence line in each file that can carry a comment
	local file bad=0
	while IFS= read -r file; do
		case $file in
		LICENSE | *.md | *.json | *.pcap | *.bin | *.svg | *.png) continue ;;
		esac
		[ -s "$file" ] || continue
		if ! head -n 8 "$file" | grep -q 'SPDX-License-Identifier: BSD-2-Clause'; then
			echo "$file: no SPDX-License-Identifier: BSD-2-Clause in its first lines"
			bad=1
		fi
	done < <(own_files)
	return "$bad"
}

step_headers() { # each header compiles alone
	tools/headers-alone.sh gcc
	tools/headers-alone.sh clang
}

# The style class is left to clang-tidy: it wants variables in the innermost block, the kernel's
# layout has them at the top.
step_cppcheck() { # cppcheck
	mkdir -p build-cppcheck
	c_files | grep -z '\.c$' | xargs -0r cppcheck --quiet -j "$jobs" \
		--cppcheck-build-dir=build-cppcheck --std=c11 -D_GNU_SOURCE -D__linux__ -Isrc \
		--library=posix --library=gnu --enable=warning,performance,portability \
		--inline-suppr --error-exitcode=1
}

step_tidy() { # clang-tidy, as .clang-tidy says
	WERROR=true quietly tools/build.sh --setup-only clang
	quietly run-clang-tidy -quiet -j "$jobs" -p build-clang
}

step_gcc() { # make check: every suite, with gcc
	WERROR=true JOBS=$jobs make --no-print-directory check | tee "$logs/tests.gcc"
}

step_instructions() { # instructions a frame, against those that bench/instructions.py has recorded
	if [ "$(id -u)" -ne 0 ]; then
		echo "(left out: it needs root, for a tap)"
		return
	fi
	bench/run instructions --enforce
}

# Guests run with one more build only, the one that shows most: they take longest.
step_clang() { # unit, port, loop, proto and hostile suites, with clang
	suites clang 1 unit port loop proto hostile
}

step_asan() { # these and guests, with the address and undefined-behaviour sanitizers
	suites asan 2 unit port loop proto hostile guest
}

step_tsan() { # unit, port, loop, proto and hostile suites, with the thread sanitizer
	TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1} \
		suites tsan 3 unit port loop proto hostile
}

# Build a kind and run suites with their deadlines multiplied: suites KIND FACTOR SUITE...
suites() {
	local kind=$1 factor=$2
	shift 2
	WERROR=true JOBS=$jobs tools/build.sh "$kind"
	meson test -C "build-$kind" --no-rebuild --print-errorlogs -t "$factor" \
		"${@/#/--suite=}" | tee "$logs/tests.$kind"
}

# What a step is about: the comment behind its name.
about() {
	sed -n "s/^step_$1() { # //p" "$0"
}

# Sum up what meson counted, also when a step failed half-way. A step that failed by something else
# than a test counts as one failure, so that the total never reads like a success.
finish() {
	local status=$?
	local ok bad skipped
	touch "$logs/tests.none"
	ok=$(count 'Ok|Expected Fail')
	bad=$(count 'Fail|Unexpected Pass|Timeout')
	skipped=$(count 'Skipped')
	rm -rf "$logs"
	if [ "$status" -ne 0 ]; then
		echo "FAILED: $step"
		[ "$bad" -gt 0 ] || bad=1
	fi
	[ "$skipped" -eq 0 ] || echo "$skipped skipped"
	echo "$ok passed, $bad failed"
}

count() {
	cat "$logs"/tests.* | awk -F: -v kinds="^($1)\$" '$1 ~ kinds { sum += $2 } END { print sum + 0 }'
}

if [ "${1:-}" = --list ]; then
	for step in "${steps[@]}"; do
		printf '%-10s %s\n' "$step" "$(about "$step")"
	done
	rm -rf "$logs"
	exit 0
fi
for step in "$@"; do
	if ! declare -F "step_$step" >/dev/null; then
		echo "check.sh: no such step: $step (--list shows them)" >&2
		rm -rf "$logs"
		exit 2
	fi
done
[ $# -eq 0 ] || steps=("$@")

trap finish EXIT
for step in "${steps[@]}"; do
	echo "== $step: $(about "$step")"
	start=$SECONDS
	"step_$step"
	echo "== $step: done in $((SECONDS - start)) s"
done
