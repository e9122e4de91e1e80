#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Show uvhostd at work: a User-mode Linux guest on a tap, in a network namespace of its own.
# Usage: tools/demo.sh    needs root and a build (make); make demo sees to the rest
#
#     guest 10.9.0.2, eth0 --vhost-user--> uvhostd --tap0--> host 10.9.0.1, iperf3 -s
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

uvhostd=build/uvhostd
seconds=3 # of each iperf3 run
host=10.9.0.1
guest=10.9.0.2

# ---- what is needed ----

lacking=()
for tool in linux.uml ip ping iperf3 ethtool insmod python3; do
	command -v "$tool" >/dev/null || lacking+=("$tool")
done
if [ ${#lacking[@]} -gt 0 ]; then
	echo "demo.sh: lacking ${lacking[*]}; to get them: sudo tools/deps.sh demo" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "demo.sh: lacking root, for a tap and a network namespace; to get it: sudo make demo" >&2
	exit 1
fi
if [ ! -x "$uvhostd" ]; then
	echo "demo.sh: lacking $uvhostd; to get it: make" >&2
	exit 1
fi
if [ ! -c /dev/net/tun ]; then
	echo "demo.sh: lacking /dev/net/tun; to get it: modprobe tun, or give it to the container" >&2
	exit 1
fi
if [ "${1:-}" != --inside ]; then
	# The namespace ends with the last process in it.
	unshare --net --pid --fork true 2>/dev/null ||
		{ echo "demo.sh: lacking the right to make namespaces; to get it: run as real root" >&2 && exit 1; }
	exec unshare --net "$0" --inside
fi

# ---- beginning and end ----

work=$(mktemp -d "${TMPDIR:-/tmp}/uvhost-demo.XXXXXX")
pids=()

cleanup() {
	local status=$? pid
	trap - EXIT
	trap '' INT TERM HUP
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	for pid in "${pids[@]}"; do
		for _ in {1..30}; do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "$pid" 2>/dev/null || true
	done
	if [ "$status" -ne 0 ]; then
		echo "== Failed; the end of the logs" >&2
		tail -n 15 "$work"/*.log >&2 || true
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

heading() {
	printf '\n== %s\n' "$*"
}

# ---- the guest ----

boot_guest() {
	mkfifo "$work/to" "$work/from"
	exec 3<>"$work/to" 4<>"$work/from"
	# In a process namespace of its own: its helper processes end with it.
	unshare --pid --fork --kill-child timeout -k 5 150 linux.uml mem=256M \
		rootfstype=hostfs root=/dev/root ro "init=$PWD/test/guest/init.sh" con=null con0=fd:0,fd:1 \
		ssl0=fd:3,fd:4 "uml_dir=$work" virtio_uml.device="$work/sock:1" \
		</dev/null >"$work/guest.log" 2>&1 &
	guest_pid=$!
	pids+=("$guest_pid")
	await_guest
}

# Print what the guest writes until a command ends there; its status.
await_guest() {
	local line
	while IFS= read -r -t 60 line <&4; do
		case $line in
		$'\036ready') return 0 ;;
		$'\036'*) return "${line#?}" ;;
		*) printf '%s\n' "$line" ;;
		esac
	done
	echo "demo.sh: the guest does not answer" >&2
	return 1
}

in_guest() {
	printf '%s\n' "$*" >&3
	await_guest
}

# The last lines of iperf3 -f m, readable.
in_gbits() {
	awk '/receiver/ {
		printf "  %.2f Gbit/s", $7 / 1000
		if ($10 ~ /\//)
			printf ", jitter %s ms, lost %s %s", $9, $11, $12
		print ""
		ok = 1
	}
	END { exit !ok }'
}

# ---- the tour ----

ip link set lo up
heading "uvhostd serves a tap"
timeout -k 5 170 "$uvhostd" --socket-path="$work/sock" --port=tap:tap0 \
	>"$work/counters.json" 2>"$work/uvhostd.log" &
pids+=($!)
for _ in {1..50}; do
	[ ! -S "$work/sock" ] || break
	sleep 0.1
done
ip addr add "$host/24" dev tap0
ip link set tap0 up
echo "  $uvhostd --socket-path=SOCK --port=tap:tap0"

heading "A guest boots, its NIC is that socket"
start=$(date +%s%N)
boot_guest
in_guest "ip addr add $guest/24 dev eth0; ip link set eth0 up"
awk -v ns="$(($(date +%s%N) - start))" 'BEGIN { printf "  %.1f s; ", ns / 1e9 }'
in_guest 'echo "Linux $(uname -r), $(ethtool -i eth0 | sed -n "s/driver: //p")"'
in_guest 'ip -br addr show dev eth0 | tr -s " " | sed "s/^/  /"'

heading "Ping, guest to host"
in_guest "ping -n -c 5 -i 0.2 -W 2 $host" | sed -n 's/.*\(icmp_seq.*\)/  \1/p; s/^rtt/  rtt/p'

timeout -k 5 120 iperf3 -s -B "$host" >"$work/iperf3.log" 2>&1 &
pids+=($!)
sleep 0.3
iperf="timeout -k 5 30 iperf3 -f m -t $seconds -c $host"
heading "TCP, guest to host ($seconds s of iperf3)"
in_guest "$iperf" | in_gbits
heading "TCP, host to guest"
in_guest "$iperf -R" | in_gbits
heading "UDP, guest to host (asked for 100 Mbit/s)"
in_guest "$iperf -u -b 100M -l 1400" | in_gbits
heading "UDP, host to guest (asked for 100 Mbit/s)"
in_guest "$iperf -u -b 100M -l 1400 -R" | in_gbits
