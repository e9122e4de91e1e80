// SPDX-License-Identifier: BSD-2-Clause
/* The driver library's queues, against a device of ours in the same process, and against a bad one. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/iov.h"
#include "base/util.h"
#include "drv/queue.h"
#include "ring/vq.h"

#define NUM    8
#define BUF    256
#define MRG    (1ULL << VIRTIO_NET_F_MRG_RXBUF | 1ULL << VIRTIO_F_VERSION_1)
#define MODERN (1ULL << VIRTIO_F_VERSION_1)
#define HDR    VIRTIO_NET_HDR_LEN

struct env {
	struct drv_mem mem;
	struct drv_tx tx;
	struct drv_rx rx;
	char *pool;
	struct mem *dev_mem;
	struct vq dev;
	struct vq_iovs iovs;
	struct vq_chain chains[NUM];
};

static struct env e;

static void env_open(void)
{
	struct mem_region_cfg region;

	memset(&e, 0, sizeof(e));
	assert_int_equal(drv_mem_init(&e.mem, drv_tx_bytes(NUM) + drv_rx_bytes(NUM, BUF) + 65536,
				      false, NULL, 0),
			 0);
	assert_int_equal(drv_tx_init(&e.tx, &e.mem, NUM), 0);
	assert_int_equal(drv_rx_init(&e.rx, &e.mem, NUM, BUF), 0);
	e.pool = drv_mem_alloc(&e.mem, 65536);
	assert_non_null(e.pool);
	assert_null(drv_mem_alloc(&e.mem, 65536));
	region = (struct mem_region_cfg){ .gpa = e.mem.regions[0].gpa,
					  .uva = { (uintptr_t)e.mem.regions[0].addr },
					  .size = e.mem.regions[0].len,
					  .fd = e.mem.regions[0].fd };
	assert_int_equal(mem_new(&e.dev_mem, &region, 1, 0, "test"), 0);
}

static void env_close(void)
{
	mem_free(e.dev_mem, NULL);
	drv_tx_fini(&e.tx);
	drv_rx_fini(&e.rx);
	drv_mem_fini(&e.mem);
}

/* The device takes the ring over. */
static void device_on(const struct drv_ring *r, uint64_t features)
{
	struct vq_addr addr = { { (uintptr_t)r->q.split.desc },
				{ (uintptr_t)r->q.split.avail },
				{ (uintptr_t)r->q.split.used } };

	e.dev = (struct vq){ 0 }; /* whatever it had: a back end may be killed */
	assert_int_equal(vq_start(&e.dev, e.dev_mem, &addr, NUM, 0, features), 0);
}

static int device_pop(void)
{
	e.iovs.used = 0;
	return vq_pop(&e.dev, e.chains, NUM, &e.iovs);
}

static void device_return(unsigned i, uint32_t len)
{
	struct vq_done done = { .head = e.chains[i].head, .seq = e.chains[i].seq, .len = len };

	vq_push(&e.dev, &done, 1);
}

/* ---- memory ---- */

/* Memory that the caller lends is shared as it is; what is no whole page of it is refused. */
static void test_lent(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("lent", MFD_CLOEXEC);
	struct uvhost_lent lent[UVHOST_LENT_MAX + 1];
	struct drv_mem m;
	struct gpa own, gpa;
	char *at;

	assert_int_equal(ftruncate(fd, (off_t)(4 * page)), 0);
	at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
	assert_ptr_not_equal(at, MAP_FAILED);
	for (unsigned i = 0; i <= UVHOST_LENT_MAX; i++)
		lent[i] = (struct uvhost_lent){
			.fd = fd, .offset = page, .addr = at, .len = 2 * page
		};
	assert_int_equal(drv_mem_init(&m, page, false, lent, UVHOST_LENT_MAX + 1), -EINVAL);
	assert_int_equal(drv_mem_init(&m, page, false, lent, 1), 0);
	assert_true(drv_mem_gpa(&m, m.regions[0].addr, 10, &own));
	assert_true(drv_mem_gpa(&m, at + page, page, &gpa));
	assert_true(gpa.v - own.v > 1ULL << 32); /* regions do not adjoin */
	assert_false(drv_mem_gpa(&m, at + page, page + 1, &gpa));
	assert_false(drv_mem_gpa(&m, &m, sizeof(m), &gpa));
	/* The driver's own memory cannot be taken away from it. */
	assert_int_equal(ftruncate(m.regions[0].fd, 0), -1);
	drv_mem_fini(&m);
	lent[0].len = 100;
	assert_int_equal(drv_mem_init(&m, page, false, lent, 1), -EINVAL);
	lent[0].len = page;
	lent[0].offset = 1;
	assert_int_equal(drv_mem_init(&m, page, false, lent, 1), -EINVAL);
	munmap(at, 2 * page);
	close(fd);
}

/* ---- transmit ---- */

static struct uvhost_frame frame_of(struct iovec *iov, unsigned cnt)
{
	return (struct uvhost_frame){
		.iov = iov, .iov_cnt = cnt, .len = (uint32_t)iov_bytes(iov, cnt), .token = iov
	};
}

/* What the device finds in chain @i is the header, then @frame. */
static void expect_chain(unsigned i, const struct uvhost_frame *f)
{
	struct iov_cursor c = iov_cursor(e.chains[i].iov, e.chains[i].out_cnt);
	struct iov_cursor want = iov_cursor(f->iov, f->iov_cnt);
	char got[70000], should[70000];
	struct virtio_net_hdr h;

	assert_int_equal(e.chains[i].err, 0);
	assert_int_equal(e.chains[i].out_len, HDR + f->len);
	assert_int_equal(iov_read(&c, &h, HDR), HDR);
	assert_int_equal(h.flags, f->hdr.flags);
	assert_int_equal(le16toh(h.csum_start), f->hdr.csum_start);
	assert_int_equal(iov_read(&c, got, f->len), f->len);
	assert_int_equal(iov_read(&want, should, f->len), f->len);
	assert_memory_equal(got, should, f->len);
}

static void fill_pool(void)
{
	for (unsigned i = 0; i < 65536; i++)
		e.pool[i] = (char)(i * 7 + i / 251);
}

/* By reference, in one piece with headroom and in several without; tokens come back once. */
static void tx_reference(uint64_t features)
{
	struct iovec one[1], three[3];
	struct uvhost_frame frames[2];
	void *tokens[NUM];

	env_open();
	fill_pool();
	assert_int_equal(drv_tx_start(&e.tx, features), 0);
	device_on(&e.tx.r, features);
	for (unsigned round = 0; round < 3 * NUM; round++) {
		one[0] = (struct iovec){ e.pool + 1000, 100 + round };
		for (unsigned i = 0; i < 3; i++)
			three[i] = (struct iovec){ e.pool + 3000 + 500 * i, 20 + i };
		frames[0] = frame_of(one, 1);
		frames[0].headroom = true;
		frames[1] = frame_of(three, 3);
		frames[1].hdr = (struct uvhost_net_hdr){ .flags = 1, .csum_start = 20 };
		assert_int_equal(drv_tx_send(&e.tx, frames, 2), 2);
		assert_int_equal(drv_tx_sent(&e.tx, tokens, NUM), 0);
		assert_int_equal(device_pop(), 2);
		expect_chain(0, &frames[0]);
		expect_chain(1, &frames[1]);
		assert_int_equal(e.chains[0].out_cnt, 1);
		device_return(0, 0);
		device_return(1, 0);
		vq_flush(&e.dev);
		assert_int_equal(drv_tx_sent(&e.tx, tokens, 1), 1);
		assert_ptr_equal(tokens[0], one);
		assert_int_equal(drv_tx_sent(&e.tx, tokens, NUM), 1);
		assert_ptr_equal(tokens[0], three);
	}
	env_close();
}

static void test_tx_reference(void **state)
{
	tx_reference(MODERN);
	tx_reference(MODERN | 1ULL << VIRTIO_F_RING_INDIRECT_DESC);
	tx_reference(MODERN | 1ULL << VIRTIO_F_IN_ORDER | 1ULL << VIRTIO_F_RING_EVENT_IDX);
}

static void test_tx_refused(void **state)
{
	char elsewhere[100] = { 0 };
	struct iovec bad = { elsewhere, sizeof(elsewhere) }, many[NUM], good = { 0 };
	struct uvhost_frame frames[2];

	env_open();
	good = (struct iovec){ e.pool, 100 };
	frames[0] = frame_of(&good, 1);
	assert_int_equal(drv_tx_send(&e.tx, frames, 1), 0); /* no back end */
	assert_int_equal(drv_tx_start(&e.tx, MODERN), 0);
	device_on(&e.tx.r, MODERN);
	frames[1] = frame_of(&bad, 1);
	assert_int_equal(drv_tx_send(&e.tx, &frames[1], 1), -EFAULT);
	assert_int_equal(drv_tx_send(&e.tx, frames, 2), 1);
	/* The headroom of the first byte of memory is outside. */
	good.iov_base = e.mem.regions[0].addr;
	frames[0].headroom = true;
	assert_int_equal(drv_tx_send(&e.tx, frames, 1), -EFAULT);
	for (unsigned i = 0; i < NUM; i++)
		many[i] = (struct iovec){ e.pool + 10 * i, 10 };
	frames[0] = frame_of(many, NUM); /* and the header makes one too many */
	assert_int_equal(drv_tx_send(&e.tx, frames, 1), -EMSGSIZE);
	frames[0].iov_cnt = 0;
	assert_int_equal(drv_tx_send(&e.tx, frames, 1), -EMSGSIZE);
	assert_int_equal(device_pop(), 1);
	device_return(0, 0);
	env_close();
}

/* Copied frames of all sizes, until slots or descriptors are used up, again and again. */
static void tx_copies(uint64_t features)
{
	char bytes[8000];

	env_open();
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 3);
	assert_int_equal(drv_tx_start(&e.tx, features), 0);
	device_on(&e.tx.r, features);
	for (unsigned round = 0; round < 500; round++) {
		struct iovec iov[2] = { { bytes, 10 }, { bytes + 10, 50 + round * 13 % 7900 } };
		struct uvhost_frame f = frame_of(iov, 2);
		int sent = 0, popped;

		f.hdr.csum_start = (uint16_t)round;
		while (drv_tx_send_copy(&e.tx, &f, 1) == 1)
			sent++;
		assert_in_range(sent, 1, NUM);
		assert_int_equal(e.tx.slots_free,
				 NUM - (unsigned)sent * ((HDR + f.len + DRV_SLOT - 1) / DRV_SLOT));
		popped = device_pop();
		assert_int_equal(popped, sent);
		for (int i = 0; i < popped; i++) {
			expect_chain((unsigned)i, &f);
			device_return((unsigned)i, 0);
		}
		vq_flush(&e.dev);
		assert_int_equal(drv_tx_sent(&e.tx, &(void *){ NULL }, 1), 0);
		assert_int_equal(e.tx.slots_free, NUM);
	}
	assert_int_equal(drv_tx_send_copy(&e.tx, &(struct uvhost_frame){ .len = DRV_FRAME_MAX + 1 },
					  1),
			 -EMSGSIZE);
	/* More than this small ring could ever hold. */
	assert_int_equal(drv_tx_send_copy(&e.tx, &(struct uvhost_frame){ .len = 30000 }, 1),
			 -EMSGSIZE);
	env_close();
}

static void test_tx_copies(void **state)
{
	tx_copies(MODERN);
	tx_copies(MODERN | 1ULL << VIRTIO_F_RING_INDIRECT_DESC);
}

/* The back end leaves with frames: tokens come back all the same, and slots are free again. */
static void test_tx_lost(void **state)
{
	struct iovec iov;
	void *tokens[NUM];

	env_open();
	for (unsigned round = 0; round < 5; round++) {
		struct uvhost_frame f;

		iov = (struct iovec){ e.pool + 64, 100 };
		f = frame_of(&iov, 1);
		f.headroom = true;
		assert_int_equal(drv_tx_start(&e.tx, MODERN), 0);
		assert_int_equal(drv_tx_send(&e.tx, &f, 1), 1);
		assert_int_equal(drv_tx_send_copy(&e.tx, &f, 1), 1);
		assert_int_equal(drv_tx_send(&e.tx, &f, 1), 1);
		drv_tx_stop(&e.tx);
		assert_int_equal(drv_tx_send(&e.tx, &f, 1), 0);
		assert_int_equal(drv_tx_sent(&e.tx, tokens, NUM), 2);
		assert_int_equal(drv_tx_sent(&e.tx, tokens, NUM), 0);
		assert_int_equal(e.tx.slots_free, NUM);
		assert_int_equal(e.tx.lost, 3 * (round + 1));
	}
	env_close();
}

/* ---- receive ---- */

/* The device delivers @len bytes of the pool in as many buffers as they take. */
static void deliver(uint32_t len, unsigned cnt)
{
	struct virtio_net_hdr h = { .flags = 2, .num_buffers = htole16((uint16_t)cnt) };
	uint32_t done = 0;

	assert_true(device_pop() >= (int)cnt);
	for (unsigned i = 0; i < cnt; i++) {
		struct iov_cursor c = iov_cursor(e.chains[i].iov, e.chains[i].in_cnt);
		uint32_t n = i == 0 ? (uint32_t)iov_write(&c, &h, HDR) : 0, rest;

		rest = min_uint(len - done, BUF - n);
		iov_write(&c, e.pool + done, rest);
		done += rest;
		device_return(i, n + rest);
	}
	assert_int_equal(done, len);
}

/* Gives the chains behind the first @used ones back to the ring. */
static void device_publish(unsigned popped, unsigned used)
{
	vq_unpop(&e.dev, popped - used);
	vq_flush(&e.dev);
}

static void expect_frame(const struct uvhost_frame *f, uint32_t len)
{
	uint32_t at = 0;

	assert_int_equal(f->len, len);
	assert_int_equal(f->hdr.flags, 2);
	for (unsigned i = 0; i < f->iov_cnt; i++) {
		assert_memory_equal(f->iov[i].iov_base, e.pool + at, f->iov[i].iov_len);
		at += (uint32_t)f->iov[i].iov_len;
	}
	assert_int_equal(at, len);
}

/* Frames of one buffer and of several, released in any order. */
static void test_rx(void **state)
{
	struct uvhost_frame frames[NUM];
	struct iovec iov[NUM];

	env_open();
	fill_pool();
	assert_int_equal(drv_rx_start(&e.rx, MRG), 0);
	device_on(&e.rx.r, MRG);
	assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, NUM), 0);
	for (uint32_t len = 1; len < 700; len++) {
		unsigned cnt = (HDR + len + BUF - 1) / BUF;

		deliver(len, cnt);
		device_publish(NUM, cnt);
		deliver(60, 1);
		device_publish(NUM - cnt, 1);
		assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, NUM), 2);
		expect_frame(&frames[0], len);
		expect_frame(&frames[1], 60);
		drv_rx_release(&e.rx, &frames[1], 1);
		drv_rx_release(&e.rx, &frames[0], 1);
		assert_int_equal(drvq_out(&e.rx.r.q), NUM);
	}
	env_close();
}

/* A frame that finds no room for its pieces, or whose buffers come later, is not lost. */
static void test_rx_waits(void **state)
{
	struct uvhost_frame frames[NUM];
	struct iovec iov[NUM];

	env_open();
	fill_pool();
	assert_int_equal(drv_rx_start(&e.rx, MRG), 0);
	device_on(&e.rx.r, MRG);
	deliver(600, 3);
	device_publish(NUM, 3);
	assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, 2), 0);
	assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, NUM), 1);
	expect_frame(&frames[0], 600);
	/* The buffers one by one: the last one later. */
	assert_int_equal(device_pop(), NUM - 3);
	for (unsigned i = 0; i < 3; i++) {
		struct virtio_net_hdr h = { .flags = 2, .num_buffers = htole16(3) };

		assert_int_equal(drv_rx_recv(&e.rx, &frames[1], 1, iov + 3, NUM - 3), 0);
		memcpy(e.chains[i].iov[0].iov_base, i == 0 ? (char *)&h : e.pool, HDR);
		device_return(i, i == 0 ? HDR : BUF);
		vq_flush(&e.dev);
	}
	assert_int_equal(drv_rx_recv(&e.rx, &frames[1], 1, iov + 3, NUM - 3), 1);
	assert_int_equal(frames[1].len, 2 * BUF);
	assert_int_equal(frames[1].iov_cnt, 2);
	for (unsigned i = 3; i < NUM - 3; i++)
		device_return(i, 0);
	env_close();
}

/* What the caller holds when the back end leaves stays the caller's, and comes back once. */
static void test_rx_held(void **state)
{
	struct uvhost_frame frames[2];
	struct iovec iov[NUM];

	env_open();
	fill_pool();
	for (unsigned round = 0; round < 5; round++) {
		assert_int_equal(drv_rx_start(&e.rx, MRG), 0);
		assert_int_equal(drvq_out(&e.rx.r.q), NUM);
		device_on(&e.rx.r, MRG);
		deliver(600, 3);
		device_publish(NUM, 3);
		assert_int_equal(drv_rx_recv(&e.rx, frames, 1, iov, NUM), 1);
		drv_rx_stop(&e.rx);
		expect_frame(&frames[0], 600);
		if (round % 2 == 0) {
			drv_rx_release(&e.rx, frames, 1);
			continue;
		}
		/* Released to the next one. */
		assert_int_equal(drv_rx_start(&e.rx, MRG), 0);
		assert_int_equal(drvq_out(&e.rx.r.q), NUM - 3);
		drv_rx_release(&e.rx, frames, 1);
		assert_int_equal(drvq_out(&e.rx.r.q), NUM);
		drv_rx_stop(&e.rx);
	}
	env_close();
}

/* ---- a back end that breaks the rules ---- */

/* One used element, written by hand. */
static void forge(const struct drv_ring *r, uint32_t id, uint32_t len, uint16_t idx)
{
	le32_set(&r->q.split.used->ring[0].id, id);
	le32_set(&r->q.split.used->ring[0].len, len);
	le16_store(&r->q.split.used->idx, idx, memory_order_release);
}

static void expect_broken(uint64_t features, uint16_t num_buffers, uint32_t id, uint32_t len,
			  uint16_t idx)
{
	struct uvhost_frame frames[NUM];
	struct iovec iov[NUM];

	env_open();
	assert_int_equal(drv_rx_start(&e.rx, features), 0);
	for (unsigned i = 0; i < NUM; i++) {
		struct virtio_net_hdr h = { .num_buffers = htole16(num_buffers) };

		memcpy(e.rx.bufs[i].addr, &h, sizeof(h));
	}
	forge(&e.rx.r, id, len, idx);
	assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, NUM), 0);
	assert_true(e.rx.r.broken);
	assert_true(drv_ring_interrupts(&e.rx.r, true)); /* look at me */
	drv_rx_stop(&e.rx);
	assert_int_equal(drv_rx_start(&e.rx, features), 0);
	assert_int_equal(drvq_out(&e.rx.r.q), NUM);
	env_close();
}

static void test_bad_back_end(void **state)
{
	expect_broken(MRG, 1, NUM, 100, 1);     /* a head that there is not */
	expect_broken(MRG, 1, 0, BUF + 1, 1);   /* more than fits */
	expect_broken(MRG, 1, 0, 100, NUM + 1); /* an index that jumps */
	expect_broken(MRG, 1, 0, HDR - 1, 1);   /* half a header */
	expect_broken(MRG, 0, 0, 100, 1);       /* a frame of no buffers */
	expect_broken(MRG, NUM + 1, 0, 100, 1); /* and of more than there are */
	expect_broken(MODERN, 0, 0, HDR - 1, 1);
}

/* Headers that contradict themselves or their frame are counted; the buffers come back. */
static void test_malformed(void **state)
{
	static const struct virtio_net_hdr bad[] = {
		{ .flags = 1, .csum_start = 90, .csum_offset = 10 },
		{ .flags = 1, .csum_start = 65535, .csum_offset = 65535 },
		{ .gso_type = 1, .gso_size = 100 },
		{ .flags = 1, .gso_type = 1 },
	};
	struct uvhost_frame frames[NUM];
	struct iovec iov[NUM];

	env_open();
	assert_int_equal(drv_rx_start(&e.rx, MODERN), 0);
	device_on(&e.rx.r, MODERN);
	for (unsigned i = 0; i < 10 * ARRAY_SIZE(bad); i++) {
		assert_int_equal(device_pop(), NUM);
		memcpy(e.chains[0].iov[0].iov_base, &bad[i % ARRAY_SIZE(bad)], HDR);
		device_return(0, HDR + 100);
		device_publish(NUM, 1);
		assert_int_equal(drv_rx_recv(&e.rx, frames, NUM, iov, NUM), 0);
		assert_int_equal(e.rx.malformed, i + 1);
		assert_int_equal(drvq_out(&e.rx.r.q), NUM);
	}
	assert_false(e.rx.r.broken);
	env_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lent),         cmocka_unit_test(test_tx_reference),
		cmocka_unit_test(test_tx_refused),   cmocka_unit_test(test_tx_copies),
		cmocka_unit_test(test_tx_lost),      cmocka_unit_test(test_rx),
		cmocka_unit_test(test_rx_waits),     cmocka_unit_test(test_rx_held),
		cmocka_unit_test(test_bad_back_end), cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
