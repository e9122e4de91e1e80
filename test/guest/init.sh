#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The first process of a User-mode Linux guest whose root is the host's own files, read-only: runs
# the commands that come over its serial line (ssl0; serial.sh), and powers off when that is closed.
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

serial=/dev/ttyS0
. "${0%/*}/serial.sh"

power_off
