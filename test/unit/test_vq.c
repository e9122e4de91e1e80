// SPDX-License-Identifier: BSD-2-Clause
/* The device's side of a ring, against the real driver's side and against rings written by hand. */
#include "ring_env.h"

/* ---- start and stop ---- */

/* Field case 18: sizes that are none. */
static void test_start_refuses_sizes(void **state)
{
	const unsigned sizes[] = { 0, 3, 255, 2048, 32768, 65535 };
	struct env *e = env_new(256, 0);

	vq_stop(&e->dev);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		e->num = sizes[i];
		assert_int_equal(env_start(e, 0), -EINVAL);
		expect(!vq_running(&e->dev));
	}
	for (unsigned num = 1; num <= VQ_NUM_MAX; num *= 2) {
		e->num = num;
		assert_int_equal(env_start(e, 0), 0);
		vq_stop(&e->dev);
	}
	env_free(e);
}

/* Field cases 16 and 54: a part outside of memory or across two regions is refused here and not met
 * in traffic; the event word is of the part. */
static void test_start_refuses_places(void **state)
{
	struct env *e = env_new(256, EVENT_IDX);
	struct vq_addr good = e->addr;

	vq_stop(&e->dev);
	e->addr.desc.v = A_UVA + A_SIZE - VRING_DESC_BYTES(256) + 16;
	assert_int_equal(env_start(e, 0), -EFAULT);
	e->addr.desc.v -= 16;
	assert_int_equal(env_start(e, 0), 0);
	vq_stop(&e->dev);

	e->addr = good;
	e->addr.avail.v = A_UVA + A_SIZE - VRING_AVAIL_BYTES(256) + 2;
	assert_int_equal(env_start(e, 0), -EFAULT);
	e->addr = good;
	e->addr.used.v = B_UVA + B_SIZE - VRING_USED_BYTES(256) + 2;
	assert_int_equal(env_start(e, 0), -EFAULT);
	/* Guest-physical addresses are not what a ring's address is (field case 51). */
	e->addr.used.v = A_GPA;
	assert_int_equal(env_start(e, 0), -EFAULT);
	e->addr.used.v = ~0ULL;
	assert_int_equal(env_start(e, 0), -EFAULT);

	e->addr = good;
	e->addr.desc.v += 8;
	assert_int_equal(env_start(e, 0), -EINVAL);
	e->addr = good;
	e->addr.avail.v += 1;
	assert_int_equal(env_start(e, 0), -EINVAL);
	e->addr = good;
	e->addr.used.v += 2;
	assert_int_equal(env_start(e, 0), -EINVAL);
	env_free(e);
}

/* Field case 58: what the front end believes is older than what the ring says. */
static void test_start_believes_used_idx(void **state)
{
	struct env *e = env_new(256, 0);

	vq_stop(&e->dev);
	le16_set(&e->drv.split.used->idx, 100);
	le16_set(&e->drv.split.avail->idx, 110);
	assert_int_equal(env_start(e, 0), 1);
	assert_int_equal(vq_base(&e->dev), 100);
	assert_int_equal(vq_pending(&e->dev, e->num), 10);
	vq_stop(&e->dev);
	assert_int_equal(env_start(e, 100), 0);
	vq_stop(&e->dev);

	le16_set(&e->drv.split.avail->idx, 100 + 257);
	assert_int_equal(env_start(e, 100), -EPROTO);
	le16_set(&e->drv.split.avail->idx, 99);
	assert_int_equal(env_start(e, 100), -EPROTO);
	env_free(e);
}

/* Field cases 55, 56 and 57: the base is the next chain to take; what was given back is not skipped;
 * a fresh ring begins at 0 whatever the last one had reached. */
static void test_base_over_restart(void **state)
{
	struct env *e = env_new(256, 0);

	for (size_t i = 0; i < 60; i++)
		assert_int_equal(env_add(e, 64, true, i), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_serve(e, 37, 1), 37);
	assert_int_equal(env_pop(e, 5), 5);
	vq_unpop(&e->dev, 5);
	assert_int_equal(vq_base(&e->dev), 37);
	vq_stop(&e->dev);
	expect(!vq_running(&e->dev));
	assert_int_equal(vq_base(&e->dev), 37);
	assert_int_equal(env_start(e, 37), 0);
	assert_int_equal(env_serve(e, 256, 1), 23);
	for (size_t i = 0; i < 60; i++)
		env_expect_used(e, i, 1);
	env_expect_none(e);
	vq_stop(&e->dev);

	/* A driver that was loaded anew (field case 66). */
	drvq_fini(&e->drv);
	env_lay(e, 128, 0);
	assert_int_equal(env_start(e, 0), 0);
	assert_int_equal(env_add(e, 64, true, 7), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_serve(e, 256, 9), 1);
	assert_int_equal(raw_used_idx(e), 1);
	env_expect_used(e, 7, 9);
	env_free(e);
}

/* Field cases 95 and 102: flags and event index are right at once, whatever an earlier run left. */
static void test_start_asks_for_kicks(void **state)
{
	for (int event_idx = 0; event_idx < 2; event_idx++) {
		struct env *e = env_new(16, event_idx ? EVENT_IDX : 0);
		le16 *event = vring_avail_event(e->drv.split.used, 16);

		env_wind(e, 7);
		vq_stop(&e->dev);
		le16_set(&e->drv.split.used->flags, VRING_USED_F_NO_NOTIFY);
		le16_set(event, 9);
		le16_set(&e->drv.split.avail->idx, 10);
		assert_int_equal(env_start(e, 7), 0);
		assert_int_equal(le16_get(&e->drv.split.used->flags), 0);
		/* Without the feature the word is not ours. */
		assert_int_equal(le16_get(event), event_idx ? 7 : 9);
		assert_int_equal(vq_pending(&e->dev, e->num), 3);
		expect(env_notify(e));
		env_free(e);
	}
}

/* ---- chains that are in order ---- */

/* Field case 71: id is the head's, len the whole chain's; and no piece is lost or moved. */
static void test_chain_shapes(void **state)
{
	for (unsigned indirect = 0; indirect < 2; indirect++) {
		struct env *e = env_new(16, indirect ? INDIRECT : 0);
		struct drvq_buf bufs[10];

		for (unsigned i = 0; i < 10; i++)
			bufs[i] = (struct drvq_buf){ { BUF_GPA + i * 1000ULL }, 10 + i };
		for (unsigned out = 0; out <= 5; out++) {
			for (unsigned in = out == 0; in <= 5; in++) {
				const struct vq_chain *c = e->chains;

				assert_int_equal(drvq_add(&e->drv, bufs, out, in, token_ptr(5)), 0);
				drvq_publish(&e->drv);
				assert_int_equal(env_pop(e, 16), 1);
				assert_int_equal(c->err, 0);
				assert_int_equal(c->out_cnt, out);
				assert_int_equal(c->in_cnt, in);
				assert_int_equal(c->out_len + c->in_len,
						 iov_bytes(c->iov, out + in));
				for (unsigned i = 0; i < out + in; i++)
					assert_int_equal(c->iov[i].iov_len, 10 + i);
				c->iov[-1].iov_len = 12; /* the spare one */
				env_push(e, c, c->in_len);
				vq_flush(&e->dev);
				env_expect_used(e, 5, c->in_len);
			}
		}
		assert_int_equal(drvq_out(&e->drv), 0);
		env_free(e);
	}
}

/* Each chain of a burst has a free piece in front, which is no other's. */
static void test_spare_pieces(void **state)
{
	struct env *e = env_new(16, 0);
	const struct drvq_buf bufs[2] = { { { BUF_GPA }, 10 }, { { BUF_GPA + 100 }, 20 } };

	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(drvq_add(&e->drv, bufs, i % 2, 1, token_ptr(i)), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 16), 8);
	assert_int_equal(e->iovs.used, 8 + 4 + 8);
	for (unsigned i = 0; i < 8; i++)
		e->chains[i].iov[-1] = (struct iovec){ e, 12345 };
	assert_int_equal(e->iovs.used, 8 + 4 + 8);
	for (unsigned i = 0; i < 8; i++) {
		const struct vq_chain *c = &e->chains[i];

		assert_int_equal(iov_bytes(c->iov, c->out_cnt), c->out_len);
		assert_int_equal(iov_bytes(c->iov + c->out_cnt, c->in_cnt), c->in_len);
		env_push(e, c, c->in_len);
	}
	vq_flush(&e->dev);
	env_free(e);
}

/* The specification's own oddity: plain descriptors, then one that refers to a table (2.7.5.3.2). */
static void test_direct_then_indirect(void **state)
{
	struct env *e = env_new(16, INDIRECT);
	struct vring_desc *t = env_ptr(e, TABLE_GPA);

	raw_desc(e, 3, BUF_GPA, 12, VRING_DESC_F_NEXT, 9);
	/* WRITE on the reference means nothing. */
	raw_desc(e, 9, TABLE_GPA, 32, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 77);
	raw_put(&t[0], BUF_GPA + 100, 50, VRING_DESC_F_NEXT, 1);
	raw_put(&t[1], BUF_GPA + 200, 60, VRING_DESC_F_WRITE, 0);
	raw_publish(e, 3);
	assert_int_equal(env_pop(e, 1), 1);
	assert_int_equal(e->chains[0].err, 0);
	assert_int_equal(e->chains[0].head, 3);
	assert_int_equal(e->chains[0].out_cnt, 2);
	assert_int_equal(e->chains[0].out_len, 62);
	assert_int_equal(e->chains[0].in_len, 60);
	env_push(e, e->chains, 0);
	vq_flush(&e->dev);
	env_free(e);
}

/* Field case 4: a buffer over the seam of two regions carries the right bytes, both ways; so does a
 * table, also at an odd address. */
static void test_across_the_seam(void **state)
{
	struct env *e = env_new(16, INDIRECT);
	char text[200], back[200];
	struct vring_desc table[3];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 7 + 1);
	for (unsigned cut = 0; cut <= sizeof(text); cut++) {
		const uint64_t at = SEAM - cut;
		struct iov_cursor c;

		env_write(e, at, text, sizeof(text));
		memset(table, 0, sizeof(table));
		raw_put(&table[0], at, 100, VRING_DESC_F_NEXT, 2);
		raw_put(&table[2], at + 100, 100, VRING_DESC_F_NEXT, 1);
		raw_put(&table[1], END_GPA - 1000, 200, VRING_DESC_F_WRITE, 0);
		/* The table over the seam, too, from nothing of it to all in A, at every alignment. */
		env_write(e, SEAM + 0x1000 - cut % 49, table, sizeof(table));
		raw_desc(e, 1, SEAM + 0x1000 - cut % 49, sizeof(table), VRING_DESC_F_INDIRECT, 0);
		raw_publish(e, 1);
		assert_int_equal(env_pop(e, 16), 1);
		assert_int_equal(e->chains[0].err, 0);
		assert_int_equal(e->chains[0].out_cnt, cut % 100 == 0 ? 2 : 3);
		assert_int_equal(e->chains[0].out_len, 200);
		c = iov_cursor(e->chains[0].iov, e->chains[0].out_cnt);
		assert_int_equal(iov_read(&c, back, sizeof(back)), sizeof(back));
		assert_memory_equal(back, text, sizeof(text));
		env_push(e, e->chains, 0);
		vq_flush(&e->dev);
	}
	for (unsigned cut = 0; cut <= 48; cut++) {
		struct iov_cursor c;

		memset(table, 0, sizeof(table));
		raw_put(&table[0], BUF_GPA, 5, VRING_DESC_F_NEXT, 2);
		raw_put(&table[2], BUF_GPA + 5, 6, VRING_DESC_F_NEXT, 1);
		raw_put(&table[1], SEAM + 5000 - cut * 200ULL, 10000, VRING_DESC_F_WRITE, 0);
		env_write(e, SEAM - cut, table, sizeof(table));
		raw_desc(e, 2, SEAM - cut, sizeof(table), VRING_DESC_F_INDIRECT, 0);
		raw_publish(e, 2);
		assert_int_equal(env_pop(e, 16), 1);
		assert_int_equal(e->chains[0].err, 0);
		assert_int_equal(e->chains[0].out_len, 11);
		assert_int_equal(e->chains[0].in_len, 10000);
		c = iov_cursor(e->chains[0].iov + e->chains[0].out_cnt, e->chains[0].in_cnt);
		assert_int_equal(iov_write(&c, text, sizeof(text)), sizeof(text));
		env_read(e, SEAM + 5000 - cut * 200ULL, back, sizeof(back));
		assert_memory_equal(back, text, sizeof(text));
		env_push(e, e->chains, 200);
		vq_flush(&e->dev);
	}
	env_free(e);
}

/* Publishes @len bytes cut into @cnt pieces and expects them back whole. */
static void pass_cut(struct env *e, const char *frame, const unsigned *cuts, size_t cnt)
{
	struct drvq_buf bufs[8];
	static char back[2000];
	struct iov_cursor c;
	unsigned len = 0;

	for (unsigned i = 0; i < cnt; i++) {
		bufs[i] = (struct drvq_buf){ { BUF_GPA + i * 3000ULL + i }, cuts[i] };
		memcpy(env_ptr(e, bufs[i].addr.v), frame + len, cuts[i]);
		len += cuts[i];
	}
	assert_int_equal(drvq_add(&e->drv, bufs, (unsigned)cnt, 0, token_ptr(0)), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 2), 1);
	assert_int_equal(e->chains[0].err, 0);
	assert_int_equal(e->chains[0].out_len, len);
	c = iov_cursor(e->chains[0].iov, e->chains[0].out_cnt);
	assert_int_equal(iov_read(&c, back, 12), min_size(len, 12));
	if (len > 12)
		assert_int_equal(iov_read(&c, back + 12, sizeof(back) - 12), len - 12);
	assert_memory_equal(back, frame, len);
	env_push(e, e->chains, 0);
	vq_flush(&e->dev);
	env_expect_used(e, 0, 0);
}

/* Field case 6: any layout of a 12-byte header. Field case 23: a frame cut anywhere. */
static void test_splits(void **state)
{
	struct env *e = env_new(16, 0);
	char frame[1512];

	for (size_t i = 0; i < sizeof(frame); i++)
		frame[i] = (char)(i * 13 + (i >> 8));
	for (unsigned a = 0; a <= 12; a++) {
		for (unsigned b = 0; a + b <= 12; b++) {
			const unsigned cuts[] = { a, b, 12 - a - b, 60 };

			pass_cut(e, frame, cuts, 4);
			pass_cut(e, frame, cuts, 3);
			pass_cut(e, frame, cuts, 2);
			pass_cut(e, frame, cuts, 1);
		}
	}
	for (unsigned a = 1; a < 1500; a++) {
		const unsigned cuts[] = { 12 + a, 1500 - a };

		pass_cut(e, frame, cuts, 2);
	}
	srandom(1);
	for (unsigned n = 0; n < 1000; n++) {
		unsigned cuts[5], left = sizeof(frame);

		for (unsigned i = 0; i < 4; i++) {
			cuts[i] = (unsigned)random() % (left + 1);
			left -= cuts[i];
		}
		cuts[4] = left;
		pass_cut(e, frame, cuts, 5);
	}
	env_free(e);
}

/* Field case 21: 1,024 descriptors of a byte each, direct and from a table. */
static void test_longest_chains(void **state)
{
	struct env *e = env_new(1024, INDIRECT);
	struct vring_desc *t = env_ptr(e, TABLE_GPA);
	static struct drvq_buf bufs[1024];

	for (unsigned i = 0; i < 1024; i++)
		bufs[i] = (struct drvq_buf){ { BUF_GPA + i * 64ULL }, 64 };
	assert_int_equal(drvq_add(&e->drv, bufs, 1000, 24, token_ptr(5)), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 16), 1);
	assert_int_equal(e->chains[0].err, 0);
	assert_int_equal(e->chains[0].out_cnt, 1000);
	assert_int_equal(e->chains[0].in_len, 24 * 64);
	env_push(e, e->chains, 24 * 64);
	vq_flush(&e->dev);
	env_expect_used(e, 5, 24 * 64);

	/* One more than VQ_NUM_MAX in a table is too many; the walk ends. */
	for (unsigned last = 1023; last <= 1024; last++) {
		for (unsigned i = 0; i <= last; i++)
			raw_put(&t[i], BUF_GPA + i, 1, i < last ? VRING_DESC_F_NEXT : 0, i + 1);
		raw_desc(e, 5, TABLE_GPA, 16 * (last + 1), VRING_DESC_F_INDIRECT, 0);
		raw_publish(e, 5);
		assert_int_equal(env_pop(e, 16), 1);
		assert_int_equal(e->chains[0].err, last == 1023 ? 0 : -ELOOP);
		assert_int_equal(e->chains[0].out_len, last == 1023 ? 1024 : 0);
		env_push(e, e->chains, 0);
		vq_flush(&e->dev);
	}
	env_free(e);
}

/* Field case 21: a burst takes only chains that fit, and the rest later, none twice. */
static void test_burst_fills_pieces(void **state)
{
	struct env *e = env_new(1024, INDIRECT);
	struct vring_desc *t = env_ptr(e, TABLE_GPA);
	unsigned total = 0;
	int cnt;

	/* 20 chains share one table of 500 pieces: 8 times 501 fit into 4,096. */
	for (unsigned i = 0; i < 500; i++)
		raw_put(&t[i], BUF_GPA + i * 10ULL, 10, i < 499 ? VRING_DESC_F_NEXT : 0, i + 1);
	for (unsigned i = 0; i < 20; i++) {
		raw_desc(e, i, TABLE_GPA, 500 * 16, VRING_DESC_F_INDIRECT, 0);
		raw_publish(e, i);
	}
	while ((cnt = env_pop(e, 64)) > 0) {
		assert_int_equal(cnt, total < 16 ? 8 : 4);
		expect(e->iovs.used <= VQ_IOVS_MAX);
		/* Those that did not fit are not forgotten. */
		assert_int_equal(vq_kick_on(&e->dev), total + (unsigned)cnt < 20);
		for (int i = 0; i < cnt; i++) {
			assert_int_equal(e->chains[i].head, total++);
			assert_int_equal(e->chains[i].out_cnt, 500);
			env_push(e, &e->chains[i], 0);
		}
		vq_flush(&e->dev);
		/* Without any room nothing is taken, and nothing is wrong. */
		e->iovs.used = VQ_IOVS_MAX;
		assert_int_equal(vq_pop(&e->dev, e->chains, 1, &e->iovs), 0);
		e->iovs.used = VQ_IOVS_MAX - 1;
		assert_int_equal(vq_pop(&e->dev, e->chains, 1, &e->iovs), 0);
	}
	assert_int_equal(total, 20);
	env_free(e);
}

/* A chain that fits into no burst is a bad chain: 1,024 descriptors, each over all of 5 regions. */
static void test_chain_too_large(void **state)
{
	struct env *e = env_new(1024, INDIRECT);
	struct mem_region_cfg r[7];
	struct mem *small = NULL;
	struct vring_desc *t = env_ptr(e, TABLE_GPA);

	for (unsigned i = 0; i < 6; i++)
		r[i] = (struct mem_region_cfg){
			{ END_GPA + i * 64ULL }, { B_UVA + i * 64ULL }, 64, i * PAGE, e->fd
		};
	r[6] = (struct mem_region_cfg){ { A_GPA }, { A_UVA }, A_SIZE, A_OFF, e->fd };
	assert_int_equal(mem_new(&small, r, 7, 0, "test"), 0);
	vq_stop(&e->dev);
	mem_free(e->mem, NULL);
	e->mem = small;
	assert_int_equal(env_start(e, 0), 0);
	for (unsigned i = 0; i < 1024; i++)
		raw_put(&t[i], END_GPA + 32, 4 * 64, i < 1023 ? VRING_DESC_F_NEXT : 0, i + 1);
	raw_desc(e, 0, TABLE_GPA, 1024 * 16, VRING_DESC_F_INDIRECT, 0);
	raw_desc(e, 1, BUF_GPA, 10, 0, 0);
	raw_publish(e, 1);
	raw_publish(e, 0);
	raw_publish(e, 1);
	assert_int_equal(env_pop(e, 64), 1);
	env_push(e, e->chains, 0);
	assert_int_equal(env_pop(e, 64), 2);
	assert_int_equal(e->chains[0].err, -E2BIG);
	assert_int_equal(e->chains[0].out_cnt, 0);
	assert_int_equal(e->chains[1].err, 0);
	env_push(e, &e->chains[0], 0);
	env_push(e, &e->chains[1], 0);
	vq_flush(&e->dev);
	env_free(e);
}

/* ---- chains that are bad ---- */

struct bad {
	const char *what;
	struct {
		uint64_t addr;
		uint32_t len;
		unsigned flags, next;
	} ring[3], table[3];
	int err;
};

#define NEXT VRING_DESC_F_NEXT
#define WRIT VRING_DESC_F_WRITE
#define INDI VRING_DESC_F_INDIRECT
#define T    TABLE_GPA
#define B    BUF_GPA

static const struct bad bad_chains[] = {
	/* Field case 1: loops of empty descriptors. */
	{ "self loop", { { B, 0, NEXT, 0 } }, { { 0 } }, -ELOOP },
	{ "loop of two", { { B, 0, NEXT, 1 }, { B, 0, NEXT, 0 } }, { { 0 } }, -ELOOP },
	{ "loop to write", { { B, 0, NEXT | WRIT, 0 } }, { { 0 } }, -ELOOP },
	{ "loop behind head", { { B, 9, NEXT, 1 }, { B, 9, NEXT, 1 } }, { { 0 } }, -ELOOP },
	{ "loop in table",
	  { { T, 32, INDI, 0 } },
	  { { B, 0, NEXT, 1 }, { B, 0, NEXT, 1 } },
	  -ELOOP },
	/* Field case 3: tables. */
	{ "table: next beyond", { { T, 32, INDI, 0 } }, { { B, 9, NEXT, 7 } }, -EINVAL },
	{ "table: next is end", { { T, 32, INDI, 0 } }, { { B, 9, NEXT, 2 } }, -EINVAL },
	{ "table: nested", { { T, 32, INDI, 0 } }, { { T, 32, INDI, 0 } }, -EINVAL },
	{ "table: of 8", { { T, 8, INDI, 0 } }, { { B, 9, 0, 0 } }, -EINVAL },
	{ "table: of 24", { { T, 24, INDI, 0 } }, { { B, 9, 0, 0 } }, -EINVAL },
	{ "table: empty", { { T, 0, INDI, 0 } }, { { B, 9, 0, 0 } }, -EINVAL },
	{ "table: and next",
	  { { T, 32, INDI | NEXT, 1 }, { B, 9, 0, 0 } },
	  { { B, 9, 0, 0 } },
	  -EINVAL },
	{ "table: nowhere", { { NO_GPA, 32, INDI, 0 } }, { { 0 } }, -EFAULT },
	{ "table: past end", { { END_GPA - 16, 32, INDI, 0 } }, { { 0 } }, -EFAULT },
	{ "table: huge", { { T, 0xfffffff0, INDI, 0 } }, { { B, 9, 0, 0 } }, -EFAULT },
	/* Field cases 4, 13 and 14: addresses. */
	{ "address 0", { { 0, 1, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "address ~0", { { ~0ULL, 1, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "address ~0, wraps", { { ~0ULL, 2, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "address at end", { { END_GPA, 1, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "last byte outside", { { END_GPA - 99, 100, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "before the first", { { A_GPA - 1, 2, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "second outside", { { B, 9, NEXT, 1 }, { NO_GPA, 9, 0, 0 } }, { { 0 } }, -EFAULT },
	{ "to write, outside", { { B, 9, NEXT, 1 }, { NO_GPA, 9, WRIT, 0 } }, { { 0 } }, -EFAULT },
	{ "in table, outside", { { T, 16, INDI, 0 } }, { { NO_GPA, 9, 0, 0 } }, -EFAULT },
	/* Field case 10: directions. */
	{ "read after write", { { B, 9, NEXT | WRIT, 1 }, { B, 9, 0, 0 } }, { { 0 } }, -EINVAL },
	{ "the same, empty", { { B, 0, NEXT | WRIT, 1 }, { B, 9, 0, 0 } }, { { 0 } }, -EINVAL },
	{ "write, then table",
	  { { B, 9, NEXT | WRIT, 1 }, { T, 16, INDI, 0 } },
	  { { B, 9, 0, 0 } },
	  -EINVAL },
	/* Field case 20, for split rings: an index that is none. */
	{ "next beyond", { { B, 9, NEXT, 16 } }, { { 0 } }, -EINVAL },
	{ "next far beyond", { { B, 9, NEXT, 65535 } }, { { 0 } }, -EINVAL },
};

static void load_bad(struct env *e, const struct bad *b)
{
	struct vring_desc *t = env_ptr(e, TABLE_GPA);

	for (unsigned i = 0; i < 3; i++) {
		raw_desc(e, i, b->ring[i].addr, b->ring[i].len, b->ring[i].flags, b->ring[i].next);
		raw_put(&t[i], b->table[i].addr, b->table[i].len, b->table[i].flags,
			b->table[i].next);
	}
}

/* Each comes out as what it is, without pieces, and leaves the queue as good as before. */
static void test_bad_chains(void **state)
{
	struct env *e = env_new(16, INDIRECT);

	raw_desc(e, 8, BUF_GPA, 77, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad_chains); i++) {
		const struct bad *b = &bad_chains[i];

		load_bad(e, b);
		raw_publish(e, 8);
		raw_publish(e, 0);
		raw_publish(e, 8);
		assert_int_equal(env_pop(e, 16), 3);
		if (e->chains[1].err != b->err)
			print_error("%s: %d\n", b->what, e->chains[1].err);
		assert_int_equal(e->chains[1].err, b->err);
		assert_int_equal(e->chains[1].head, 0);
		assert_int_equal(e->chains[1].out_cnt + e->chains[1].in_cnt, 0);
		assert_int_equal(e->chains[1].out_len + e->chains[1].in_len, 0);
		for (unsigned k = 0; k <= 2; k += 2) {
			assert_int_equal(e->chains[k].err, 0);
			assert_int_equal(e->chains[k].out_len, 77);
		}
		for (unsigned k = 0; k < 3; k++)
			env_push(e, &e->chains[k], 0);
		vq_flush(&e->dev);
	}
	env_free(e);
}

/* Field case 9: ten rings full of bad chains; each comes back once, with length 0. Field case 7: good
 * ones follow. */
static void test_bad_chains_come_back(void **state)
{
	struct env *e = env_new(16, 0);
	struct drvq_buf bad[2] = { { { BUF_GPA }, 100 }, { { NO_GPA }, 100 } };

	for (unsigned n = 0; n < 10 * 16; n++) {
		assert_int_equal(drvq_add(&e->drv, bad, 1, 1, token_ptr(5)), 0);
		drvq_publish(&e->drv);
		assert_int_equal(env_serve(e, 16, 0), 1);
		assert_int_equal(e->chains[0].err, -EFAULT);
		assert_int_equal(raw_used_idx(e), raw_avail_idx(e));
		env_expect_used(e, 5, 0);
	}
	for (unsigned n = 0; n < 1000; n++) {
		assert_int_equal(env_add(e, 100, false, n), 0);
		drvq_publish(&e->drv);
		assert_int_equal(env_serve(e, 16, 0), 1);
		assert_int_equal(e->chains[0].err, 0);
		env_expect_used(e, n, 0);
	}
	env_free(e);
}

/* Without the feature there are no tables. */
static void test_indirect_not_acked(void **state)
{
	struct env *e = env_new(16, 0);
	struct vring_desc *t = env_ptr(e, TABLE_GPA);

	raw_put(&t[0], BUF_GPA, 10, 0, 0);
	raw_desc(e, 0, TABLE_GPA, 16, VRING_DESC_F_INDIRECT, 0);
	raw_publish(e, 0);
	assert_int_equal(env_serve(e, 1, 0), 1);
	assert_int_equal(e->chains[0].err, -EINVAL);
	env_free(e);
}

/* Field case 5: no bytes are no piece, and the address is not looked at. */
static void test_empty_descriptors(void **state)
{
	struct env *e = env_new(16, 0);

	raw_desc(e, 0, ~0ULL, 0, VRING_DESC_F_NEXT, 1);
	raw_desc(e, 1, BUF_GPA, 5, VRING_DESC_F_NEXT, 2);
	raw_desc(e, 2, NO_GPA, 0, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 3);
	raw_desc(e, 3, BUF_GPA, 6, VRING_DESC_F_WRITE, 0);
	raw_desc(e, 4, ~0ULL, 0, 0, 0);
	raw_publish(e, 0);
	raw_publish(e, 4);
	assert_int_equal(env_serve(e, 16, 0), 2);
	assert_int_equal(e->chains[0].err, 0);
	assert_int_equal(e->chains[0].out_cnt, 1);
	assert_int_equal(e->chains[0].in_cnt, 1);
	assert_int_equal(e->chains[0].in_len, 6);
	assert_int_equal(e->chains[1].err, 0);
	assert_int_equal(e->chains[1].out_cnt + e->chains[1].in_cnt, 0);
	env_free(e);
}

/* They are work for a pop all the same: it ends after VQ_IOVS_MAX of them. */
static void test_empty_are_counted(void **state)
{
	struct env *e = env_new(256, 0);
	unsigned cnt = 0;

	for (uint16_t i = 0; i < 256; i++)
		raw_desc(e, i, BUF_GPA, i == 255, i < 255 ? VRING_DESC_F_NEXT : 0,
			 (uint16_t)(i + 1));
	for (unsigned i = 0; i < 256; i++)
		raw_publish(e, 0);
	while (cnt < 256) {
		int got = env_serve(e, 256, 0);

		assert_in_range(got, 1, VQ_IOVS_MAX / 256);
		cnt += (unsigned)got;
		assert_int_equal(e->chains[0].out_len, 1);
	}
	assert_int_equal(cnt, 256);
	env_free(e);
}

/* Field case 22: sums beyond 16 and beyond 32 bits, in memory that really is that large. */
static void test_large_sums(void **state)
{
	struct env *e = env_new(16, 0);
	int fd = memfd_create("large", MFD_CLOEXEC);
	const uint64_t large = 5ULL << 30;
	struct mem_region_cfg r[2] = {
		{ { A_GPA }, { A_UVA }, A_SIZE, A_OFF, e->fd },
		{ { 1ULL << 40 }, { 1ULL << 40 }, large, 0, fd },
	};

	assert_int_equal(ftruncate(fd, (off_t)large), 0);
	vq_stop(&e->dev);
	mem_free(e->mem, NULL);
	assert_int_equal(mem_new(&e->mem, r, 2, 0, "test"), 0);
	assert_int_equal(env_start(e, 0), 0);
	for (unsigned write = 0; write <= VRING_DESC_F_WRITE; write += VRING_DESC_F_WRITE) {
		/* 0xffffffff twice: 0xfffffffe in 32 bits. */
		raw_desc(e, 0, 1ULL << 40, 0xffffffff, VRING_DESC_F_NEXT | write, 1);
		raw_desc(e, 1, 1ULL << 40, 0xffffffff, write, 0);
		/* 2^32 exactly: 0 in 32 bits. */
		raw_desc(e, 2, 1ULL << 40, 0xffffffff, VRING_DESC_F_NEXT | write, 3);
		raw_desc(e, 3, 1ULL << 40, 1, write, 0);
		raw_desc(e, 4, 1ULL << 40, 0xfffffffe, VRING_DESC_F_NEXT | write, 3);
		raw_publish(e, 0);
		raw_publish(e, 2);
		raw_publish(e, 4);
		assert_int_equal(env_serve(e, 16, 0), 3);
		assert_int_equal(e->chains[0].err, -EOVERFLOW);
		assert_int_equal(e->chains[1].err, -EOVERFLOW);
		assert_int_equal(e->chains[2].err, 0);
		assert_int_equal(write ? e->chains[2].in_len : e->chains[2].out_len, 0xffffffff);
	}
	close(fd);
	env_free(e);
}

/* ---- rings that are bad ---- */

/* Field case 11: an index that jumps, ahead or back, and what only looks like it. */
static void test_index_jumps(void **state)
{
	const uint16_t starts[] = { 0, 100, 65530 };
	const int jumps[] = { 17, 0x8000, -1, -17 };

	for (size_t s = 0; s < ARRAY_SIZE(starts); s++) {
		for (size_t j = 0; j < ARRAY_SIZE(jumps); j++) {
			struct env *e = env_new(16, 0);

			env_wind(e, starts[s]);
			le16_set(&e->drv.split.avail->idx, (uint16_t)(starts[s] + jumps[j]));
			expect(vq_kick_on(&e->dev)); /* look again ... */
			assert_int_equal(env_pop(e, 4), -EPROTO);
			expect(e->dev.broken);
			/* ... and no more. */
			expect(!vq_kick_on(&e->dev));
			expect(!vq_peek(&e->dev));
			assert_int_equal(vq_pending(&e->dev, e->num), -EPROTO);
			/* It stays broken when the index is mended, until the next start. */
			le16_set(&e->drv.split.avail->idx, (uint16_t)(starts[s] + 16));
			assert_int_equal(env_pop(e, 4), -EPROTO);
			vq_stop(&e->dev);
			assert_int_equal(env_start(e, starts[s]), 0);
			assert_int_equal(env_serve(e, 16, 0), 16);
			env_free(e);
		}
	}
}

/* A driver cannot add chains while we hold as many as it has descriptors. */
static void test_more_out_than_there_are(void **state)
{
	struct env *e = env_new(4, IN_ORDER);

	raw_desc(e, 0, BUF_GPA, 10, 0, 0);
	for (unsigned i = 0; i < 4; i++)
		raw_publish(e, 0);
	assert_int_equal(env_pop(e, 4), 4);
	raw_publish(e, 0);
	e->iovs.used = 0;
	assert_int_equal(vq_pop(&e->dev, e->chains + 4, 4, &e->iovs), -EPROTO);
	/* What we hold can be returned to a broken ring. */
	for (unsigned i = 4; i-- > 0;)
		env_push(e, &e->chains[i], 0);
	vq_flush(&e->dev);
	assert_int_equal(raw_used_idx(e), 4);
	env_free(e);
}

/* An index that steps back over chains which were seen but not taken (2.7.6.1). */
static void test_index_steps_back(void **state)
{
	struct env *e = env_new(16, 0);

	raw_desc(e, 0, BUF_GPA, 10, 0, 0);
	for (unsigned i = 0; i < 8; i++)
		raw_publish(e, 0);
	assert_int_equal(env_serve(e, 2, 0), 2);
	le16_set(&e->drv.split.avail->idx, 5);
	assert_int_equal(vq_pending(&e->dev, e->num), -EPROTO);
	env_free(e);
}

/* A head that does not exist; the chains before it are served. */
static void test_bad_heads(void **state)
{
	const unsigned heads[] = { 16, 17, 255, 0x8000, 0xffff };

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		struct env *e = env_new(16, 0);

		raw_desc(e, 0, BUF_GPA, 10, 0, 0);
		raw_publish(e, 0);
		raw_publish(e, 0);
		raw_publish(e, heads[i]);
		raw_publish(e, 0);
		assert_int_equal(env_serve(e, 16, 0), 2);
		expect(e->dev.broken);
		assert_int_equal(env_pop(e, 16), -EPROTO);
		assert_int_equal(vq_base(&e->dev), 2);
		assert_int_equal(raw_used_idx(e), 2);
		env_free(e);
	}
}

/* The memory goes away: the ring of zeros that is left is not believed. */
static void test_memory_goes_away(void **state)
{
	struct env *e = env_new(256, 0);

	assert_int_equal(mem_guard_install(), 0);
	env_wind(e, 65530);
	assert_int_equal(env_add(e, 10, false, 1), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 1), 1);
	assert_int_equal(ftruncate(e->fd, 0), 0);
	/* Index 0 would be 6 chains. */
	assert_int_equal(vq_pending(&e->dev, e->num), -EPROTO);
	expect(mem_broken(e->mem));
	env_push(e, e->chains, 0);
	vq_flush(&e->dev);
	expect(env_notify(e));
	assert_int_equal(ftruncate(e->fd, FILE_LEN), 0);
	env_put_canaries(e);
	env_free(e);
}

/* ---- taking back, returning ---- */

static void test_unpop(void **state)
{
	struct env *e = env_new(16, 0);

	for (size_t i = 0; i < 10; i++)
		assert_int_equal(env_add(e, 10, false, i), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 6), 6);
	vq_unpop(&e->dev, 4);
	assert_int_equal(vq_base(&e->dev), 2);
	assert_int_equal(vq_pending(&e->dev, e->num), 8);
	env_push(e, &e->chains[1], 0); /* any order */
	env_push(e, &e->chains[0], 0);
	assert_int_equal(raw_used_idx(e), 0); /* not before the flush */
	vq_flush(&e->dev);
	assert_int_equal(env_serve(e, 16, 0), 8);
	env_expect_used(e, 1, 0);
	env_expect_used(e, 0, 0);
	for (size_t i = 2; i < 10; i++)
		env_expect_used(e, i, 0);
	env_expect_none(e);
	env_free(e);
}

/* Field case 97: chains that were found too few do not wake who waits for more. */
static void test_unpopped_chains_are_no_news(void **state)
{
	for (int event_idx = 0; event_idx < 2; event_idx++) {
		struct env *e = env_new(16, event_idx ? EVENT_IDX : 0);

		for (size_t i = 0; i < 10; i++)
			assert_int_equal(env_add(e, 4096, true, i), 0);
		drvq_publish(&e->drv);
		vq_kick_off(&e->dev);
		expect(vq_peek(&e->dev));
		assert_int_equal(env_pop(e, 16), 10);
		vq_unpop(&e->dev, 10);
		expect(!vq_peek(&e->dev));
		expect(!vq_kick_on(&e->dev));
		assert_int_equal(vq_pending(&e->dev, e->num), 10);
		/* The next one is news, and is kicked for. */
		assert_int_equal(env_add(e, 4096, true, 10), 0);
		expect(drvq_publish(&e->drv));
		expect(vq_peek(&e->dev));
		expect(vq_kick_on(&e->dev));
		/* Chains that no pop got to are news, though they were seen. */
		assert_int_equal(env_pop(e, 3), 3);
		vq_unpop(&e->dev, 2);
		expect(vq_kick_on(&e->dev));
		env_push(e, e->chains, 0);
		assert_int_equal(env_serve(e, 16, 0), 10);
		expect(!vq_kick_on(&e->dev));
		env_free(e);
	}
}

/* IN_ORDER: whatever the order of pushes, the driver gets its chains in its own order. */
static void test_in_order(void **state)
{
	struct env *e = env_new(128, IN_ORDER);
	size_t added = 0, got = 0;
	struct drvq_used used;

	env_wind(e, 65400);
	e->drv.oldest = e->drv.free_head;
	srandom(2);
	for (unsigned round = 0; round < 2000; round++) {
		unsigned cnt = (unsigned)random() % 128 + 1, popped;

		while (cnt-- > 0 && env_add(e, 100, true, added) == 0)
			added++;
		drvq_publish(&e->drv);
		popped = (unsigned)env_pop(e, 128);
		/* All in random order, some of them given back instead. */
		cnt = (unsigned)random() % (popped + 1);
		vq_unpop(&e->dev, popped - cnt);
		for (unsigned i = 0; i < cnt; i++) {
			unsigned k = i + (unsigned)random() % (cnt - i);
			struct vq_chain c = e->chains[k];

			e->chains[k] = e->chains[i];
			env_push(e, &c, c.seq % 100);
			if (random() % 4 == 0)
				vq_flush(&e->dev);
			while (drvq_get(&e->drv, &used) == 1)
				assert_int_equal(token_num(used.token), got++);
		}
		vq_flush(&e->dev);
		while (drvq_get(&e->drv, &used) == 1)
			assert_int_equal(token_num(used.token), got++);
		assert_int_equal(drvq_out(&e->drv), added - got);
		assert_int_equal(drvq_get(&e->drv, &used), 0);
	}
	expect(got > 65536);
	assert_int_equal(env_serve(e, 128, 0), added - got);
	env_free(e);
}

/* A held chain holds up all that come after it, and a whole ring of those has room. */
static void test_in_order_holds_back(void **state)
{
	struct env *e = env_new(1024, IN_ORDER);

	env_wind(e, 65000);
	for (size_t i = 0; i < 1024; i++)
		assert_int_equal(env_add(e, 8, false, i), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 1024), 1024);
	for (unsigned i = 1023; i > 0; i--)
		env_push(e, &e->chains[i], 0);
	vq_flush(&e->dev);
	expect(env_notify(e)); /* the first */
	expect(!env_notify(e));
	env_expect_none(e);
	env_push(e, &e->chains[0], 0);
	vq_flush(&e->dev);
	expect(env_notify(e));
	for (size_t i = 0; i < 1024; i++)
		env_expect_used(e, i, 0);
	env_expect_none(e);
	env_free(e);
}

/* ---- signals ---- */

/* Serves @cnt chains and says whether the driver is to be signalled. */
static bool signals(struct env *e, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++)
		assert_int_equal(env_add(e, 8, false, i), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_serve(e, cnt, 0), cnt);
	for (unsigned i = 0; i < cnt; i++)
		env_expect_used(e, i, 0);
	return env_notify(e);
}

/* Field case 93: the range, not equality, at every distance and over the wrap; the first one after a
 * start always. */
static void test_notify_event_idx(void **state)
{
	struct env *e = env_new(16, EVENT_IDX);
	le16 *event = vring_used_event(e->drv.split.avail, 16);

	for (uint16_t at = 65500; at != 40; at++) {
		for (unsigned batch = 1; batch <= 4; batch++) {
			for (unsigned k = 0; k <= 5; k++) {
				env_wind(e, at);
				le16_set(event, at - 9);
				expect(signals(e, 1));
				le16_set(event, (uint16_t)(at + 1 + k));
				assert_int_equal(signals(e, batch), k < batch);
				/* Told once. */
				expect(!env_notify(e));
			}
		}
	}
	/* The lower bit of flags means nothing here (2.7.7.2). */
	le16_set(&e->drv.split.avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
	le16_set(event, raw_used_idx(e));
	expect(signals(e, 1));
	env_free(e);
}

/* Field case 90: without EVENT_IDX, each time unless the driver asked not to. */
static void test_notify_flags(void **state)
{
	struct env *e = env_new(16, 0);

	drvq_call_off(&e->drv);
	expect(signals(e, 1)); /* the first */
	expect(!signals(e, 3));
	expect(!drvq_call_on(&e->drv));
	expect(!env_notify(e)); /* nothing new */
	expect(signals(e, 1));
	expect(signals(e, 16));
	env_free(e);
}

/* Field case 94: the driver kicks by the rule only, and does so once for each sleep, for more than
 * 65,536 chains. */
static void test_kicks(void **state)
{
	for (int event_idx = 0; event_idx < 2; event_idx++) {
		struct env *e = env_new(4, event_idx ? EVENT_IDX : 0);
		unsigned needless = 0;

		for (unsigned n = 0; n < 70000; n++) {
			expect(!vq_kick_on(&e->dev));
			assert_int_equal(env_add(e, 8, false, n), 0);
			expect(drvq_publish(&e->drv));
			vq_kick_off(&e->dev);
			for (unsigned k = 1; k < 3; k++) {
				assert_int_equal(env_add(e, 8, false, n + k), 0);
				needless += drvq_publish(&e->drv);
			}
			expect(vq_kick_on(&e->dev));
			vq_kick_off(&e->dev);
			assert_int_equal(env_serve(e, 4, 0), 3);
			for (unsigned k = 0; k < 3; k++)
				env_expect_used(e, n + k, 0);
		}
		/* kick_on() and the look again put one in between. */
		expect(needless == 0);
		env_free(e);
	}
}

/* A device that never sleeps with EVENT_IDX is kicked once in 65,536 chains. */
static void test_kicks_while_polling(void **state)
{
	struct env *e = env_new(16, EVENT_IDX);
	unsigned kicks = 0;

	for (unsigned n = 0; n < 3 * 65536; n++) {
		vq_kick_off(&e->dev);
		assert_int_equal(env_add(e, 8, false, n), 0);
		kicks += drvq_publish(&e->drv);
		assert_int_equal(env_serve(e, 16, 0), 1);
		env_expect_used(e, n, 0);
	}
	assert_int_equal(kicks, 3);
	env_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SPLIT(test_start_refuses_sizes),
		SPLIT(test_start_refuses_places),
		SPLIT(test_start_believes_used_idx),
		SPLIT(test_base_over_restart),
		SPLIT(test_start_asks_for_kicks),
		BOTH_LAYOUTS(test_chain_shapes),
		BOTH_LAYOUTS(test_spare_pieces),
		SPLIT(test_direct_then_indirect),
		SPLIT(test_across_the_seam),
		BOTH_LAYOUTS(test_splits),
		SPLIT(test_longest_chains),
		SPLIT(test_burst_fills_pieces),
		SPLIT(test_chain_too_large),
		SPLIT(test_bad_chains),
		SPLIT(test_bad_chains_come_back),
		SPLIT(test_indirect_not_acked),
		SPLIT(test_empty_descriptors),
		SPLIT(test_empty_are_counted),
		SPLIT(test_large_sums),
		SPLIT(test_index_jumps),
		SPLIT(test_more_out_than_there_are),
		SPLIT(test_index_steps_back),
		SPLIT(test_bad_heads),
		SPLIT(test_memory_goes_away),
		SPLIT(test_unpop),
		BOTH_LAYOUTS(test_unpopped_chains_are_no_news),
		BOTH_LAYOUTS(test_in_order),
		BOTH_LAYOUTS(test_in_order_holds_back),
		SPLIT(test_notify_event_idx),
		BOTH_LAYOUTS(test_notify_flags),
		BOTH_LAYOUTS(test_kicks),
		SPLIT(test_kicks_while_polling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
