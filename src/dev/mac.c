// SPDX-License-Identifier: BSD-2-Clause
/* A MAC address for a device that was given none. */
#include "dev/mac.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* FNV-1a: spreads a few bytes well; nothing here is a secret. */
static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

void mac_for_name(uint8_t mac[VIRTIO_NET_MAC_LEN], const char *name)
{
	uint64_t h = 0xcbf29ce484222325ULL;
	char id[64];
	int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, id, sizeof(id)) : -1;

	fd_close(&fd);
	if (n > 0)
		h = hash(h, id, (size_t)n);
	h = hash(h, name, strlen(name));
	memcpy(mac, &h, VIRTIO_NET_MAC_LEN);
	mac[0] = (uint8_t)((mac[0] & 0xfc) | 0x02); /* local, unicast */
}

/* The value of a hexadecimal digit, or -1. */
static int hex(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return at != NULL ? (int)(at - digits) : -1;
}

bool mac_parse(uint8_t mac[VIRTIO_NET_MAC_LEN], const char *text)
{
	static const uint8_t zero[VIRTIO_NET_MAC_LEN];

	/* "xx:" six times, with the end of the text in place of the last colon. */
	for (unsigned i = 0; i < VIRTIO_NET_MAC_LEN; i++, text += 3) {
		int high = hex(text[0]), low = high >= 0 ? hex(text[1]) : -1;

		if (low < 0 || text[2] != (i + 1 < VIRTIO_NET_MAC_LEN ? ':' : '\0'))
			return false;
		mac[i] = (uint8_t)(high << 4 | low);
	}
	return (mac[0] & 1) == 0 && memcmp(mac, zero, sizeof(zero)) != 0;
}
