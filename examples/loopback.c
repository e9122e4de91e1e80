/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The smallest use of the uvhost driver library: sends frames to a back end that returns them, and
 * counts those that come back.
 *
 *	cc loopback.c $(pkg-config --cflags --libs uvhost) -o loopback
 *	uvhostd --socket-path=/tmp/loop.sock --port=loop: &
 *	./loopback /tmp/loop.sock
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <uvhost/driver.h>

#define FRAMES 1000

/* Sleeps until the driver has something to do; false: nothing in five seconds. */
static bool wait_for(struct uvhost_driver *d, struct uvhost_queue *q)
{
	struct pollfd pfd = { .fd = uvhost_driver_fd(d), .events = POLLIN };

	/* Ask first, then look again, then sleep: what comes in between is not missed. */
	if (!uvhost_queue_interrupts(q, UVHOST_INTERRUPT_RX | UVHOST_INTERRUPT_TX) &&
	    poll(&pfd, 1, 5000) != 1)
		return false;
	return uvhost_driver_process(d) == 0;
}

int main(int argc, char **argv)
{
	struct uvhost_driver_cfg cfg = UVHOST_DRIVER_CFG;
	unsigned char bytes[100] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
	struct iovec out = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct uvhost_frame frame = { .iov = &out, .iov_cnt = 1, .len = sizeof(bytes) };
	unsigned sent = 0, received = 0;
	struct uvhost_driver *d;
	struct uvhost_queue *q;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: loopback SOCKET\n");
		return 2;
	}
	cfg.socket_path = argv[1];
	rc = uvhost_driver_open(&d, &cfg);
	if (rc < 0) {
		/* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
		fprintf(stderr, "loopback: cannot make a driver: %s\n", strerror(-rc));
		return 1;
	}
	q = uvhost_driver_queue(d, 0);
	while (received < FRAMES) {
		struct uvhost_frame frames[32];
		struct iovec pieces[64];
		unsigned n;

		while (sent < FRAMES && sent - received < 64 &&
		       uvhost_queue_send_copy(q, &frame, 1) == 1)
			sent++;
		n = uvhost_queue_recv(q, frames, 32, pieces, 64);
		uvhost_queue_release(q, frames, n);
		received += n;
		if (n == 0 && !wait_for(d, q)) {
			fprintf(stderr, "loopback: nothing comes: %u sent, %u received\n", sent,
				received);
			break;
		}
	}
	uvhost_driver_close(d);
	printf("%u of %u frames came back\n", received, FRAMES);
	return received == FRAMES ? 0 : 1;
}
