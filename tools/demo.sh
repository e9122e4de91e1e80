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
	if ! unshare --net --pid --fork true 2>/dev/null; then
		echo "demo.sh: lacking the right to make namespaces; to get it: docker run --privileged" >&2
		exit 1
	fi
	exec unshare --net "$0" --inside
fi

# ---- beginning and end ----

work=$(mktemp -d "${TMPDIR:-/tmp}/uvhost-demo.XXXXXX")
guest_pid=
pids=()

cleanup() {
	local status=$? pid
	trap - EXIT
	trap '' INT TERM HUP
	# The guest has nothing to lose, and its process namespace ends with it.
	[ -z "$guest_pid" ] || kill -KILL "$guest_pid" 2>/dev/null || true
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	for pid in "${pids[@]}"; do
		end_of "$pid" || kill -KILL "$pid" 2>/dev/null || true
	done
	if [ "$status" -ne 0 ] && [ "$status" -lt 128 ]; then
		printf '\n== Failed; the ends of the logs\n' >&2
		tail -n 15 "$work"/*.log >&2 || true
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Wait some seconds until a process has ended.
end_of() {
	local i
	for ((i = 0; i < 50; i++)); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	return 1
}

heading() {
	printf '\n== %s\n' "$*"
}

# ---- the guest ----

# In a process namespace, so that its helper processes end with it.
boot_guest() {
	mkfifo "$work/to" "$work/from"
	exec 3<>"$work/to" 4<>"$work/from"
	unshare --pid --fork --kill-child timeout -k 5 150 linux.uml mem=256M \
		rootfstype=hostfs root=/dev/root ro "init=$PWD/test/guest/init.sh" con=null con0=fd:0,fd:1 \
		ssl0=fd:3,fd:4 "uml_dir=$work" virtio_uml.device="$work/sock:1" \
		</dev/null >"$work/guest.log" 2>&1 &
	guest_pid=$!
	disown "$guest_pid" # it is killed without a word
	await_guest
}

# Print what the guest writes until a command ends there; its status.
await_guest() {
	local line
	while IFS= read -r -t 90 line <&4; do
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

# What the receiver got, out of iperf3 -f m.
received() {
	awk '/receiver/ {
		printf $7 < 100 ? "  %.1f Mbit/s" : "  %.2f Gbit/s", $7 < 100 ? $7 : $7 / 1000
		if ($11 ~ /\//)
			printf ", jitter %s ms, lost %s %s", $9, $11, $12
		print ""
		ok = 1
	}
	END { exit !ok }'
}

# ---- the tour ----

ip link set lo up
heading "uvhostd serves a tap"
timeout -k 5 170 "$uvhostd" --socket-path="$work/sock" --port=tap:tap0 --stats \
	>"$work/counters.json" 2>"$work/uvhostd.log" &
uvhostd_pid=$!
pids+=("$uvhostd_pid")
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
in_guest 'for i in {1..50}; do grep -qx up /sys/class/net/eth0/operstate && break; sleep 0.1; done'
awk -v ns="$(($(date +%s%N) - start))" 'BEGIN { printf "  %.1f s; ", ns / 1e9 }'
# shellcheck disable=SC2016 # the guest is to expand it
in_guest 'echo "Linux $(uname -r), $(ethtool -i eth0 | sed -n "s/driver: //p")"'
in_guest 'ip -br addr show dev eth0 | tr -s " " | sed "s/^/  /"'

heading "Ping, guest to host"
in_guest "ping -n -c 5 -i 0.2 -W 2 $host" | sed -n 's/.*\(icmp_seq.*\)/  \1/p; s/^rtt/  rtt/p'

timeout -k 5 120 iperf3 -s -B "$host" >"$work/iperf3.log" 2>&1 &
pids+=($!)
sleep 0.3
iperf="timeout -k 5 30 iperf3 -f m -t $seconds -c $host"
heading "TCP, guest to host ($seconds s of iperf3)"
in_guest "$iperf -C cubic" | received
heading "TCP, host to guest"
in_guest "$iperf -C cubic -R" | received
heading "UDP, guest to host (5 Mbit/s wanted)"
in_guest "$iperf -u -b 5M -l 1400" | received
heading "UDP, host to guest (5 Mbit/s wanted)"
in_guest "$iperf -u -b 5M -l 1400 -R" | received

heading "The guest powers off, uvhostd ends; its counters"
echo power_off >&3
end_of "$guest_pid"
kill "$uvhostd_pid"
wait "$uvhostd_pid"
read -r load _ </proc/loadavg
echo "  (load of this machine $load; bench/RESULTS.md has figures of an idle one)"
python3 - "$work/counters.json" <<'TABLE'
import json, sys
dev = json.load(open(sys.argv[1]))["devices"][0]
ways = {"rx": "to guest", "tx": "from it"}
told = {"stale": "that came before the guest (stale)"}
print(f"  {'':8}{'frames':>10}{'MB':>9}{'bytes/frame':>13}{'interrupts':>12}  dropped")
for name in "rx", "tx":
    q = dev[name]
    drops = ", ".join(f"{n} {told.get(why, why)}" for why, n in q["drops"].items() if n) or "none"
    mean = q["bytes"] / max(q["frames"], 1)
    print(f"  {ways[name]:8}{q['frames']:10}{q['bytes'] / 1e6:9.1f}{mean:13.0f}{q['calls']:12}  {drops}")
control = dev["control"]
print(f"  control {control['commands_ok']} commands obeyed, {control['commands_refused']} refused")
TABLE
