// SPDX-License-Identifier: BSD-2-Clause
/* The driver's side of a ring: what it writes, and what it believes of what a device returns. */
#include "ring_env.h"

/* ---- what it writes ---- */

static void test_ring_layout(void **state)
{
	for (unsigned num = 1; num <= VRING_NUM_MAX; num *= 2) {
		size_t avail, used, total = drvq_ring_bytes(num, &avail, &used);

		expect(avail >= 16UL * num && avail % VRING_AVAIL_ALIGN == 0);
		expect(used >= avail + 6 + 2UL * num && used % VRING_USED_ALIGN == 0);
		expect(total >= used + 6 + 8UL * num);
	}
}

/* The ring is laid anew whatever was there. */
static void test_init_clears(void **state)
{
	struct env *e = env_new(16, EVENT_IDX);
	size_t avail, used, total = drvq_ring_bytes(16, &avail, &used);
	char *ring = env_ptr(e, A_GPA);

	vq_stop(&e->dev);
	drvq_fini(&e->drv);
	memset(ring, 0xff, total + 1);
	env_lay(e, 16, EVENT_IDX);
	for (size_t i = 0; i < total; i++)
		assert_int_equal(ring[i], 0);
	assert_int_equal((unsigned char)ring[total], 0xff);
	assert_int_equal(drvq_out(&e->drv), 0);
	env_expect_none(e);
	env_free(e);
}

/* A ring is full when its descriptors are; what does not fit changes nothing. */
static void test_full(void **state)
{
	const struct drvq_buf bufs[5] = { { { BUF_GPA }, 1 }, { { BUF_GPA }, 1 } };
	struct env *e = env_new(4, 0);

	assert_int_equal(drvq_add(&e->drv, bufs, 2, 3, token_ptr(0)), -ENOSPC);
	assert_int_equal(drvq_add(&e->drv, bufs, 2, 0, token_ptr(0)), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 2, 1, token_ptr(0)), -ENOSPC);
	assert_int_equal(drvq_add(&e->drv, bufs, 1, 0, token_ptr(0)), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 0, 1, token_ptr(0)), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 0, 1, token_ptr(0)), -ENOSPC);
	assert_int_equal(drvq_out(&e->drv), 3);
	/* Nothing is to be seen before it is published. */
	assert_int_equal(vq_pending(&e->dev, e->num), 0);
	drvq_publish(&e->drv);
	expect(!drvq_publish(&e->drv));
	assert_int_equal(env_serve(e, 4, 0), 3);
	for (unsigned i = 0; i < 3; i++)
		env_expect_used(e, 0, 0);
	assert_int_equal(drvq_out(&e->drv), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 2, 2, token_ptr(0)), 0);
	env_free(e);
}

/* With tables a chain costs one descriptor, unless the table is too small or one will do. */
static void test_indirect(void **state)
{
	struct drvq_buf bufs[TABLE_DESCS + 1];
	struct env *e = env_new(64, INDIRECT);

	for (unsigned i = 0; i <= TABLE_DESCS; i++)
		bufs[i] = (struct drvq_buf){ { BUF_GPA + 64ULL * i }, 64 };
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(
			drvq_add(&e->drv, bufs, TABLE_DESCS / 2, TABLE_DESCS / 2, token_ptr(0)), 0);
	assert_int_equal(e->drv.free_cnt, 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_serve(e, 64, 64), 64);
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(e->chains[i].err, 0);
		assert_int_equal(e->chains[i].out_cnt, TABLE_DESCS / 2);
		assert_int_equal(e->chains[i].in_len, TABLE_DESCS / 2 * 64);
		env_expect_used(e, 0, 64);
	}
	assert_int_equal(drvq_add(&e->drv, bufs, TABLE_DESCS + 1, 0, token_ptr(0)), 0);
	assert_int_equal(e->drv.free_cnt, 64 - TABLE_DESCS - 1);
	assert_int_equal(drvq_add(&e->drv, bufs, 1, 0, token_ptr(0)), 0);
	assert_int_equal(e->drv.free_cnt, 64 - TABLE_DESCS - 2);
	drvq_publish(&e->drv);
	assert_int_equal(env_serve(e, 64, 0), 2);
	assert_int_equal(e->chains[0].out_cnt, TABLE_DESCS + 1);
	env_free(e);

	/* No chain is longer than the ring, in a table neither (2.7.5.3.1). */
	e = env_new(4, INDIRECT);
	assert_int_equal(drvq_add(&e->drv, bufs, 5, 0, token_ptr(0)), -ENOSPC);
	assert_int_equal(drvq_add(&e->drv, bufs, 4, 0, token_ptr(0)), 0);
	assert_int_equal(e->drv.free_cnt, 3);
	env_free(e);
}

/* With IN_ORDER the descriptors are used in ring order, wrapping (2.7.5), whatever the chains. */
static void test_in_order_descriptors(void **state)
{
	const struct drvq_buf bufs[5] = { { { BUF_GPA }, 1 }, { { BUF_GPA }, 1 } };
	struct env *e = env_new(16, IN_ORDER);
	unsigned at = 0;

	for (unsigned n = 0; n < 1000; n++) {
		unsigned cnt = n % 5 + 1, d = at;

		assert_int_equal(drvq_add(&e->drv, bufs, cnt, 0, token_ptr(0)), 0);
		for (unsigned i = 1; i < cnt; i++, d = (d + 1) % 16)
			assert_int_equal(le16_get(&e->drv.split.desc[d].next), (d + 1) % 16);
		at = (at + cnt) % 16;
		if (n % 3 == 2) {
			drvq_publish(&e->drv);
			assert_int_equal(env_serve(e, 16, 0), 3);
			for (unsigned i = 0; i < 3; i++)
				env_expect_used(e, 0, 0);
		}
	}
	env_free(e);
}

/* ---- what a device returns ---- */

/* A device written by hand returns @id with @len. */
static void raw_use(struct env *e, uint32_t id, uint32_t len)
{
	uint16_t idx = raw_used_idx(e);
	struct vring_used_elem *elem = &e->drv.split.used->ring[idx & (e->num - 1)];

	le32_set(&elem->id, id);
	le32_set(&elem->len, len);
	le16_store(&e->drv.split.used->idx, (uint16_t)(idx + 1), memory_order_release);
}

static void expect_refused(struct env *e)
{
	struct drvq_used used;

	assert_int_equal(drvq_get(&e->drv, &used), -EPROTO);
}

/* 4 chains of 100 bytes to write, at heads 0 to 3, and one of 2 descriptors at 4; one unpublished. */
static struct env *hostile_new(uint64_t features)
{
	const struct drvq_buf bufs[2] = { { { BUF_GPA }, 10 }, { { BUF_GPA }, 100 } };
	struct env *e = env_new(8, features);

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(env_add(e, 100, true, i), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 1, 1, token_ptr(4)), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_add(e, 100, true, 5), 0);
	return e;
}

static void test_hostile_elements(void **state)
{
	const struct {
		uint32_t id, len;
	} bad[] = {
		{ 8, 0 },   { 0xffff, 0 }, { 0x10000, 0 }, { ~0U, 0 }, /* no descriptor */
		{ 5, 0 },                                              /* inside a chain */
		{ 6, 0 },                                              /* not published yet */
		{ 7, 0 },                                              /* free */
		{ 0, 101 }, { 0, ~0U },    { 4, 101 },     { 4, 110 }, /* more than fits */
	};

	for (unsigned in_order = 0; in_order < 2; in_order++) {
		for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
			struct env *e = hostile_new(in_order ? IN_ORDER : 0);

			/* Capacity in order is that of the last of the batch. */
			for (unsigned n = 0; in_order && n < 4; n++)
				raw_use(e, bad[i].id == 0 ? 0 : n, bad[i].id == 0 ? bad[i].len : 0);
			for (size_t n = 0; in_order && n < 4 && bad[i].id != 0; n++)
				env_expect_used(e, n, 0);
			raw_use(e, bad[i].id, bad[i].len);
			expect_refused(e);
			expect_refused(e);
			env_free(e);
		}
	}
}

static void test_hostile_twice(void **state)
{
	for (unsigned in_order = 0; in_order < 2; in_order++) {
		struct env *e = hostile_new(in_order ? IN_ORDER : 0);

		raw_use(e, 0, 100);
		raw_use(e, 0, 100);
		env_expect_used(e, 0, 100);
		expect_refused(e);
		env_free(e);
	}
}

/* More chains than are out, or an index that steps back. */
static void test_hostile_index(void **state)
{
	const uint16_t jumps[] = { 6, 9, 0x8000, 0xffff };

	for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
		struct env *e = hostile_new(0);

		le16_set(&e->drv.split.used->idx, jumps[i]);
		expect_refused(e);
		env_free(e);
	}
}

static void test_hostile_order(void **state)
{
	struct env *e = hostile_new(IN_ORDER);

	/* Head 2 would be a batch of three; the index says one. */
	raw_use(e, 2, 0);
	expect_refused(e);
	env_free(e);

	/* What is legal without the feature. */
	e = hostile_new(0);
	raw_use(e, 2, 0);
	raw_use(e, 4, 100);
	raw_use(e, 0, 0);
	env_expect_used(e, 2, 0);
	env_expect_used(e, 4, 100);
	env_expect_used(e, 0, 0);
	env_expect_none(e);
	env_free(e);
}

/* The books are private: what the device scribbles over the ring changes nothing in them. */
static void test_hostile_scribble(void **state)
{
	struct env *e = hostile_new(0);

	memset(e->drv.split.desc, 0xff, VRING_DESC_BYTES(8));
	for (unsigned i = 0; i < 8; i++)
		le16_set(&e->drv.split.avail->ring[i], 0xffff);
	raw_use(e, 4, 100);
	raw_use(e, 3, 1);
	env_expect_used(e, 4, 100);
	env_expect_used(e, 3, 1);
	assert_int_equal(env_add(e, 10, true, 6), 0);
	assert_int_equal(e->drv.free_cnt, 3);
	env_free(e);
}

/* 2.7.9: one element for a batch, in the slot of the batch's first; the others are used completely. */
static void test_in_order_batches(void **state)
{
	struct env *e = env_new(8, IN_ORDER);
	size_t token = 0, next = 0;
	uint16_t idx;

	env_wind(e, 65000);
	for (unsigned n = 0; n < 2000; n++) {
		unsigned cnt = n % 8 + 1;
		uint16_t head = 0;

		for (unsigned i = 0; i < cnt; i++) {
			head = e->drv.free_head;
			assert_int_equal(env_add(e, 100, true, token++), 0);
		}
		drvq_publish(&e->drv);
		/* In one batch, or in two. */
		idx = raw_used_idx(e);
		if (n % 3 == 0 && cnt > 2) {
			uint16_t mid = (uint16_t)((head - 2) & 7);

			le32_set(&e->drv.split.used->ring[idx & 7].id, mid);
			le32_set(&e->drv.split.used->ring[idx & 7].len, 7);
			le32_set(&e->drv.split.used->ring[(idx + cnt - 2) & 7].id, head);
			le32_set(&e->drv.split.used->ring[(idx + cnt - 2) & 7].len, 9);
		} else {
			le32_set(&e->drv.split.used->ring[idx & 7].id, head);
			le32_set(&e->drv.split.used->ring[idx & 7].len, 9);
		}
		le16_store(&e->drv.split.used->idx, (uint16_t)(idx + cnt), memory_order_release);
		for (unsigned i = 0; i < cnt; i++) {
			bool mid = n % 3 == 0 && cnt > 2 && i == cnt - 3;

			env_expect_used(e, next++, i == cnt - 1 ? 9 : mid ? 7 : 100);
		}
		env_expect_none(e);
	}
	assert_int_equal(drvq_out(&e->drv), 0);
	/* The device's own side was not used here. */
	env_wind(e, e->drv.avail_idx);
	env_free(e);
}

/* ---- interrupts ---- */

/* Field case 93, the driver's half: each sleep is ended by one signal, over the wrap. */
static void test_calls(void **state)
{
	for (int event_idx = 0; event_idx < 2; event_idx++) {
		struct env *e = env_new(16, event_idx ? EVENT_IDX : 0);

		expect(env_notify(e)); /* the first one is for nothing */
		drvq_call_off(&e->drv);
		for (unsigned n = 0; n < 70000; n++) {
			expect(!drvq_call_on(&e->drv));
			for (unsigned i = 0; i < 3; i++)
				assert_int_equal(env_add(e, 8, false, i), 0);
			drvq_publish(&e->drv);
			assert_int_equal(env_serve(e, 1, 0), 1);
			expect(env_notify(e));
			drvq_call_off(&e->drv);
			assert_int_equal(env_serve(e, 1, 0), 1);
			expect(!env_notify(e));
			env_expect_used(e, 0, 0);
			/* One is there already: look again. */
			expect(drvq_call_on(&e->drv));
			env_expect_used(e, 1, 0);
			expect(!drvq_call_on(&e->drv));
			assert_int_equal(env_serve(e, 1, 0), 1);
			expect(env_notify(e));
			env_expect_used(e, 2, 0);
		}
		env_free(e);
	}
}

/* With EVENT_IDX the device's flags mean nothing (2.7.10.1), without it they are all that counts. */
static void test_kick_suppression(void **state)
{
	struct env *e = env_new(16, EVENT_IDX);

	le16_set(&e->drv.split.used->flags, VRING_USED_F_NO_NOTIFY);
	assert_int_equal(env_add(e, 8, false, 0), 0);
	expect(drvq_publish(&e->drv));
	assert_int_equal(env_add(e, 8, false, 0), 0);
	expect(!drvq_publish(&e->drv));
	assert_int_equal(env_serve(e, 2, 0), 2);
	env_free(e);

	e = env_new(16, 0);
	le16_set(&e->drv.split.used->flags, VRING_USED_F_NO_NOTIFY);
	assert_int_equal(env_add(e, 8, false, 0), 0);
	expect(!drvq_publish(&e->drv));
	le16_set(&e->drv.split.used->flags, 0);
	assert_int_equal(env_add(e, 8, false, 0), 0);
	expect(drvq_publish(&e->drv));
	assert_int_equal(env_serve(e, 2, 0), 2);
	env_free(e);
}

/* ---- both sides at random ---- */

/* Chains of all shapes, returned in any order: each comes back once, with its own length. */
static void churn(uint64_t features, unsigned num)
{
	struct env *e = env_new(num, features);
	static struct vq_chain held[VQ_NUM_MAX];
	static uint32_t want[VQ_NUM_MAX]; /* by token, while it is out */
	static bool out[VQ_NUM_MAX];
	unsigned held_cnt = 0, total = 0;

	env_wind(e, 65530);
	while (total < 20000) {
		struct drvq_buf bufs[TABLE_DESCS];
		struct drvq_used used;
		unsigned cnt;
		size_t token;
		int got;

		for (token = 0; token < num; token++) {
			unsigned out_cnt = (unsigned)random() % 4, in_cnt = 1;

			if (out[token])
				continue;
			in_cnt += (unsigned)random() % 4;
			for (unsigned i = 0; i < out_cnt + in_cnt; i++)
				bufs[i] = (struct drvq_buf){ { SEAM - 300 + i }, (uint32_t)token };
			if (drvq_add(&e->drv, bufs, out_cnt, in_cnt, token_ptr(token)) < 0)
				break;
			out[token] = true;
			want[token] = in_cnt * (uint32_t)token;
		}
		drvq_publish(&e->drv);
		got = env_pop(e, (unsigned)random() % num + 1);
		expect(got >= 0);
		memcpy(held + held_cnt, e->chains, (unsigned)got * sizeof(held[0]));
		held_cnt += (unsigned)got;
		for (cnt = (unsigned)random() % (held_cnt + 1); cnt > 0; cnt--) {
			unsigned i = (unsigned)random() % held_cnt;

			assert_int_equal(held[i].err, 0);
			env_push(e, &held[i], held[i].in_len);
			held[i] = held[--held_cnt];
		}
		vq_flush(&e->dev);
		while ((got = drvq_get(&e->drv, &used)) == 1) {
			token = token_num(used.token);
			expect(out[token]);
			assert_int_equal(used.len, want[token]);
			out[token] = false;
			total++;
		}
		assert_int_equal(got, 0);
	}
	while (held_cnt > 0)
		env_push(e, &held[--held_cnt], 0);
	vq_flush(&e->dev);
	memset(out, 0, sizeof(out));
	env_free(e);
}

static void test_churn(void **state)
{
	srandom(3);
	for (unsigned kind = 0; kind < 8; kind++) {
		uint64_t features = (kind & 1 ? INDIRECT : 0) | (kind & 2 ? EVENT_IDX : 0) |
				    (kind & 4 ? IN_ORDER : 0);

		churn(features, 16);
		churn(features, 256);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SPLIT(test_ring_layout),          BOTH_LAYOUTS(test_init_clears),
		BOTH_LAYOUTS(test_full),          BOTH_LAYOUTS(test_indirect),
		SPLIT(test_in_order_descriptors), SPLIT(test_hostile_elements),
		SPLIT(test_hostile_twice),        SPLIT(test_hostile_index),
		SPLIT(test_hostile_order),        SPLIT(test_hostile_scribble),
		SPLIT(test_in_order_batches),     BOTH_LAYOUTS(test_calls),
		SPLIT(test_kick_suppression),     BOTH_LAYOUTS(test_churn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
