#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Install the Debian packages that a purpose needs, and nothing when they are all there.
# Usage: tools/deps.sh PURPOSE...    PURPOSE: build, demo, test, bench, peers, kernel
set -euo pipefail

# purpose   packages of Debian 12; '+other' stands for the row of another purpose
table() {
	cat <<'TABLE'
build    gcc libc6-dev make meson ninja-build pkg-config liburing-dev libjansson-dev scdoc
demo     +build user-mode-linux kmod python3 iproute2 iputils-ping iperf3 ethtool
test     +build +guest libcmocka-dev python3 python3-pytest git strace valgrind
test     clang libclang-rt-14-dev clang-tidy clang-format cppcheck
guest    user-mode-linux qemu-system-x86 busybox-static cpio kmod
guest    iproute2 iputils-ping iperf3 ethtool
bench    +demo strace valgrind python3-pytest linux-perf gnuplot-nox
peers    +bench dpdk-dev openvswitch-switch-dpdk
TABLE
}

# The kernel that QEMU guests boot. Only its files are needed: installing the package would build an
# initramfs and touch the boot loader of this machine.
kernel_package=linux-image-cloud-amd64
kernel_dir=${XDG_CACHE_HOME:-$HOME/.cache}/uvhost/kernel

die() {
	echo "deps.sh: $*" >&2
	exit 1
}

# The packages of a purpose, one a line.
packages_of() {
	local word
	for word in $(table | sed -n "s/^$1 *//p"); do
		case $word in
		+*) packages_of "${word#+}" ;;
		*) echo "$word" ;;
		esac
	done
}

# Those of the packages given that are not installed, one a line.
missing_of() {
	local have
	have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
		sed -n 's/^installed //p' || true)
	printf '%s\n' "$@" | grep -vxF "$have" || true
}

install_packages() {
	local missing
	mapfile -t missing < <(missing_of "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" -eq 0 ] ||
		die "lacking: ${missing[*]}; to get them: sudo apt-get install ${missing[*]}"
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends install "${missing[@]}"
}

# Download and unpack the newest cloud kernel into the cache; no root needed, unless apt's lists are
# too old to find it.
fetch_kernel() {
	local work image
	compgen -G "$kernel_dir/boot/vmlinuz-*" >/dev/null && return 0
	mkdir -p "${kernel_dir%/*}"
	work=$(mktemp -d "$kernel_dir.XXXXXX")
	# shellcheck disable=SC2064 # the folder of now
	trap "rm -rf '$work'" EXIT
	# The package without a version only depends on the one with the files.
	if ! image=$(download_image "$work") && [ "$(id -u)" -eq 0 ]; then
		apt-get -qq update
		image=$(download_image "$work") || true
	fi
	[ -n "$image" ] ||
		die "cannot download $kernel_package; to let apt find it: sudo apt-get update"
	dpkg -x "$image" "$work/tree"
	PATH=$PATH:/usr/sbin:/sbin
	depmod -b "$work/tree" "$(basename "$work"/tree/lib/modules/*)"
	# In one step: an interrupted run leaves no half of a kernel that looks whole.
	mv -T "$work/tree" "$kernel_dir"
	rm -rf "$work"
	trap - EXIT
	echo "deps.sh: kernel for QEMU guests in $kernel_dir"
}

# Print the path of the downloaded package, or fail.
download_image() {
	local name
	name=$(apt-cache depends "$kernel_package" 2>/dev/null |
		sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	[ -n "$name" ] || return 1
	# apt's own user cannot write into the folder of whoever calls.
	(cd "$1" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$name" >&2) || return 1
	compgen -G "$1/$name*.deb"
}

if [ $# -eq 0 ]; then
	sed -n 's/^# Usage: /usage: /p' "$0" >&2
	exit 2
fi
wanted=()
kernel=false
for purpose in "$@"; do
	case $purpose in
	build | demo | bench | peers) ;;
	test) kernel=true ;;
	kernel)
		kernel=true
		wanted+=(kmod)
		continue
		;;
	*) die "no such purpose: $purpose" ;;
	esac
	mapfile -t -O ${#wanted[@]} wanted < <(packages_of "$purpose")
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)

# Not an error: what is needed may well be there under other names, and the build says what is not.
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "deps.sh: not a Debian system, please see to these yourself: ${wanted[*]}" >&2
	exit 0
fi
install_packages "${wanted[@]}"
if $kernel; then
	fetch_kernel
fi
