#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Run the long forms of some tests (100 million hand-offs in memory and 10 million between processes, 100
# kills), then everything that drives a live uvhostd again and again, under the address sanitizer, until
# the time is over or something fails. Usage: [SOAK_MINUTES=60] test/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${SOAK_MINUTES:-60}
end=$((SECONDS + minutes * 60))
rounds=0

# The long forms of some tests, once, and at full speed.
tools/build.sh gcc
UVHOST_SOAK=1 meson test -C build-gcc --no-rebuild --print-errorlogs --timeout-multiplier 20 \
	handoff driver

tools/build.sh asan
while [ "$SECONDS" -lt "$end" ]; do
	meson test -C build-asan --no-rebuild --print-errorlogs \
		--suite port --suite loop --suite proto --suite hostile --suite guest
	rounds=$((rounds + 1))
	echo "soak: $rounds rounds, $(((end - SECONDS) / 60)) minutes left"
done
