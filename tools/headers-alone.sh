#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Compile each header under src/ and include/ alone: none may lean on what its users include first.
# Usage: tools/headers-alone.sh [CC [ARG...]]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
	cc=("$@")
else
	cc=("${CC:-gcc}")
fi

flags=(-std=c11 -D_GNU_SOURCE -Isrc -Wall -Wextra -Wno-unused-parameter -Werror)
dirs=(src)
if [ -d include ]; then
	dirs+=(include)
	flags+=(-Iinclude)
fi

bad=0
while IFS= read -r header; do
	# -include, as a header given as the main file is compiled by slightly other rules.
	if ! "${cc[@]}" "${flags[@]}" -fsyntax-only -include "$header" -x c /dev/null; then
		echo "headers-alone: $header does not compile alone (${cc[*]})" >&2
		bad=1
	fi
done < <(find "${dirs[@]}" -name '*.h' | sort)
exit "$bad"
