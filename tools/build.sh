#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Configure (when needed) and compile one kind of build, each in its own folder.
# Usage: tools/build.sh [--setup-only] KIND [MESON-OPTION...]    KIND: see the table below
# Environment: CC (release, debug), PREFIX (release), WERROR=true (any), JOBS.
set -euo pipefail
cd "$(dirname "$0")/.."

setup_only=false
if [ "${1:-}" = --setup-only ]; then
	setup_only=true
	shift
fi
kind=${1:?usage: tools/build.sh [--setup-only] KIND [MESON-OPTION...]}
shift

tested=(-Dtests=true "-Dwerror=${WERROR:-false}")
# -O1: sanitizers at -O0 are too slow for the deadlines of the tests, at -O2 they lose stack frames.
# A finding ends the process, so that no test can pass over it. Clang links its runtime into the
# executable only, hence no b_lundef.
sanitized=(-Ddebug=true -Doptimization=1 -Db_lundef=false
	"-Dc_args=-fno-sanitize-recover=all -fno-omit-frame-pointer")

case $kind in
release) dir=build       cc=${CC:-gcc} opts=(-Dbuildtype=release -Dtests=false "-Dwerror=${WERROR:-false}") ;;
debug)   dir=build-debug cc=${CC:-gcc} opts=("${tested[@]}" -Dbuildtype=debug) ;;
gcc)     dir=build-gcc   cc=gcc        opts=("${tested[@]}" -Dbuildtype=debugoptimized) ;;
clang)   dir=build-clang cc=clang      opts=("${tested[@]}" -Dbuildtype=debugoptimized) ;;
asan)    dir=build-asan  cc=clang      opts=("${tested[@]}" "${sanitized[@]}" "-Db_sanitize=address,undefined") ;;
tsan)    dir=build-tsan  cc=clang      opts=("${tested[@]}" "${sanitized[@]}" "-Db_sanitize=thread") ;;
*)
	echo "build.sh: no such kind of build: $kind" >&2
	exit 2
	;;
esac
opts+=("$@")

if [ ! -w . ]; then
	echo "build.sh: $PWD cannot be written to; build in a clone of your own" >&2
	exit 1
fi
if ! command -v meson >/dev/null; then
	echo "build.sh: meson is not installed; tools/deps.sh build gets what a build needs" >&2
	exit 1
fi

# Configuring takes seconds: only when the folder is new or was configured otherwise. The compiler
# cannot be changed in place, so the folder is made anew then.
key="$cc ${opts[*]}"
if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/.configured" 2>/dev/null)" != "$key" ]; then
	rm -rf "$dir"
	mkdir -p "$dir"
	if ! CC=$cc meson setup "$dir" "${opts[@]}" >"$dir/setup.log" 2>&1; then
		cat "$dir/setup.log"
		exit 1
	fi
	printf '%s\n' "$key" >"$dir/.configured"
fi
# Where to install changes no object file.
prefix=${PREFIX:-/usr/local}
if [ "$kind" = release ] && [ "$(cat "$dir/.prefix" 2>/dev/null)" != "$prefix" ]; then
	meson configure "$dir" "-Dprefix=$prefix"
	printf '%s\n' "$prefix" >"$dir/.prefix"
fi
if $setup_only; then
	ninja -C "$dir" build.ninja # the list of files may have changed
else
	ninja -C "$dir" -j "${JOBS:-$(nproc)}"
fi
