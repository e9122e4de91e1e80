#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Run everything that drives a live uvhostd again and again, under the address sanitizer, until the
# time is over or something fails. Usage: [SOAK_MINUTES=60] test/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${SOAK_MINUTES:-60}
end=$((SECONDS + minutes * 60))
rounds=0

tools/build.sh asan
while [ "$SECONDS" -lt "$end" ]; do
	meson test -C build-asan --no-rebuild --print-errorlogs \
		--suite port --suite loop --suite proto --suite hostile --suite guest
	rounds=$((rounds + 1))
	echo "soak: $rounds rounds, $(((end - SECONDS) / 60)) minutes left"
done
