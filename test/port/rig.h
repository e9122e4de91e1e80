/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A test rig for ports: a port with the two threads that it lives in.
 *
 * DOC: three threads. The *control* worker opens and closes the port. The *data* worker has it
 * attached; its tx and rx sources only count how often they are made ready. The test's own thread
 * sends functions into either. There, EXPECT() notes the first thing that went wrong; the test's
 * thread fails when the function has returned (cmocka knows one thread only).
 */
#ifndef UVHOST_TEST_PORT_RIG_H
#define UVHOST_TEST_PORT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "port/port.h"
#include "work/worker.h"

#define RIG_BYTES (128u << 20) /* address space for frames; little of it is used */
#define RIG_IOVS  (96u << 10)

struct rig {
	const char *spec;
	enum io_kind io;

	struct worker *control, *data;
	struct port *port;
	const struct port_ops *ops;
	struct work_src tx, rx;
	atomic_uint tx_runs, rx_runs;
	atomic_uint link_events;
	atomic_bool link_up;
	bool attached;

	/* Frames are made here, one behind the other. */
	uint8_t *bytes;
	size_t bytes_used;
	struct iovec iovs[RIG_IOVS];
	unsigned iovs_used;
	uint64_t seq; /* of the next probe frame */

	/* What done_send() told, by cookie. */
	unsigned back; /* in all */
	uint8_t backs[65536];
	int32_t res[65536];
	uint16_t order[65536];

	char failure[256];
};

#define EXPECT(r, cond)                                           \
	do {                                                      \
		if (!(cond))                                      \
			rig_failed(r, __FILE__, __LINE__, #cond); \
	} while (0)

void rig_failed(struct rig *r, const char *file, int line, const char *what);

/* With both workers; no port yet. */
struct rig *rig_new(const char *spec, enum io_kind io);
void rig_free(struct rig *r);
/* Opens the port and attaches it; the reverse. */
void rig_up(struct rig *r);
void rig_down(struct rig *r);
void rig_attach(struct rig *r);
void rig_detach(struct rig *r);
/* Opens; the error text is left in *@err. */
int rig_open(struct rig *r, const char **err);
void rig_close(struct rig *r);

/* Runs fn in a worker's thread between two of its rounds; fails if fn noted a failure. */
void rig_data(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg);
void rig_control(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg);

/* Waits up to two seconds. */
bool rig_wait(bool (*cond)(struct rig *r), struct rig *r);
void rig_sleep_ms(unsigned ms);

/* ---- in the data worker's thread ---- */

/* A probe frame in @pieces equal pieces; the frame is not one when it is too short. */
void frame_make(struct rig *r, struct frame *f, uint16_t cookie, uint32_t len, unsigned pieces);
/* Room for a frame, filled with 0xa5. */
void room_make(struct rig *r, struct frame *f, uint16_t cookie, uint32_t len, unsigned pieces);
/* Forgets all frames. */
void frames_reset(struct rig *r);
/* Forgets all frames and takes their memory away; gives new memory. */
void frames_unmap(struct rig *r);
void frames_remap(struct rig *r);

/* prep_send() of all, at most PORT_SENT_MAX at a time. */
void send_frames(struct rig *r, struct frame *frames, unsigned n);
void enter(struct rig *r);
/* Takes all that done_send() has; every cookie once. */
void take_sent(struct rig *r, void *unused);
void forget_sent(struct rig *r);

/* ---- in the test's thread ---- */

/* Waits until @n frames in all have come back. */
void wait_sent(struct rig *r, unsigned n);
unsigned count_fds(void);

#endif
