#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The first process of a User-mode Linux guest whose root is the host's own files, read-only: runs
# the commands that come over its serial line (ssl0), and powers off when that is closed.
#
#     in:  a command a line
#     out: \036ready at the start; then for each command its output, \036 and its exit status
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run # all that the guest may write

# For commands as well: to load and to unload the guest's driver, and to end.
modules=/usr/lib/uml/modules/$(uname -r)/kernel
load_driver() {
	insmod "$modules/drivers/net/virtio_net.ko"
}
unload_driver() {
	rmmod virtio_net
}
power_off() { # containers have no poweroff
	poweroff -ff || python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
}

ip link set lo up
for module in lib/crc-ccitt net/ipv6/ipv6 net/core/failover drivers/net/net_failover; do
	insmod "$modules/$module.ko"
done
load_driver

exec 3<>/dev/ttyS0
stty raw -echo <&3
printf '\036ready\n' >&3
while IFS= read -r line <&3; do
	(eval "$line") </dev/null >&3 2>&1 3>&-
	printf '\036%d\n' $? >&3
done

power_off
