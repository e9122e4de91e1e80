#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Install what is in build/ below PREFIX, staged in DESTDIR if set.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${DESTDIR:-}${PREFIX:-/usr/local}
existing=$target
while [ ! -e "$existing" ]; do
	existing=$(dirname "$existing")
done
if [ ! -w "$existing" ]; then
	echo "install.sh: $existing cannot be written to; sudo make install, or PREFIX=\$HOME/.local" >&2
	exit 1
fi
meson install -C build --no-rebuild
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ]; then
	ldconfig # there is a library now
fi
