// SPDX-License-Identifier: BSD-2-Clause
/* The packed ring: what both sides do with rings that the other one wrote by hand. What does not touch
 * the ring's memory is in test_vq.c, test_drvq.c and test_handoff.c, which run with both layouts. */
#include "ring_env.h"

#define NUM 8

static struct env *new_env(uint64_t features)
{
	return env_new(NUM, features | PACKED);
}

/* ---- a driver written by hand ---- */

/* Descriptor @pos of the first lap, available. */
static void put(struct env *e, unsigned pos, uint64_t addr, uint32_t len, unsigned flags,
		unsigned id)
{
	struct vring_packed_desc *d = &e->drv.packed.desc[pos];

	le64_set(&d->addr, addr);
	le32_set(&d->len, len);
	le16_set(&d->id, (uint16_t)id);
	le16_store(&d->flags, (uint16_t)(flags | VRING_PACKED_DESC_F_AVAIL), memory_order_release);
}

static uint16_t flags_at(struct env *e, unsigned pos)
{
	return le16_load(&e->drv.packed.desc[pos].flags, memory_order_acquire);
}

/* One chain is popped, with this error. */
static void pop_one(struct env *e, int err)
{
	assert_int_equal(env_pop(e, 1), 1);
	assert_int_equal(e->chains[0].err, err);
}

/* ---- start ---- */

static void test_start(void **state)
{
	struct env *e = new_env(0);
	struct vq_addr good = e->addr;
	const unsigned bad[] = { 0, VQ_NUM_MAX + 1, 32768, 65535 };

	vq_stop(&e->dev);
	/* Field case 18: any number, but not every one. */
	for (e->num = 1; e->num <= VQ_NUM_MAX; e->num++) {
		assert_int_equal(env_start(e, 0x80008000), 0);
		vq_stop(&e->dev);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e->num = bad[i];
		assert_int_equal(env_start(e, 0x80008000), -EINVAL);
	}
	e->num = NUM;
	e->addr.desc.v = A_UVA + A_SIZE - 16 * (NUM - 1);
	assert_int_equal(env_start(e, 0), -EFAULT);
	e->addr.desc.v = A_UVA + A_SIZE - 16 * NUM;
	assert_int_equal(env_start(e, 0), 0);
	vq_stop(&e->dev);
	e->addr.desc.v += 8;
	assert_int_equal(env_start(e, 0), -EFAULT);
	e->addr.desc.v -= 16;
	assert_int_equal(env_start(e, 0), -EINVAL);
	e->addr = good;
	e->addr.avail.v += 2;
	assert_int_equal(env_start(e, 0), -EINVAL);
	e->addr = good;
	e->addr.used.v = A_UVA + A_SIZE;
	assert_int_equal(env_start(e, 0), -EFAULT);
	env_free(e);
}

/* Field case 58: the base has both places, or only that of the next chain; what is used counts. */
static void test_base(void **state)
{
	const struct {
		uint32_t base;
		int ret;
		uint32_t stands;
	} cases[] = {
		{ 0x80008000, 0, 0x80008000 }, { 0x00008000, 0, 0x80008000 },
		{ 0x00000000, 0, 0x80008000 }, /* fresh */
		{ 0x80078007, 0, 0x80078007 }, { 0x00070007, 0, 0x00070007 },
		{ 0x80038005, 1, 0x80038003 }, { 0x80050003, 1, 0x80058005 }, /* round the end */
		{ 0x00000003, 0, 0x00030003 }, { 0x80058003, -EPROTO, 0x80058003 },
		{ 0x80088008, -EPROTO, 0 },    { 0x80080001, -EPROTO, 0 },
		{ 0x80010002, -EPROTO, 0 },    { 0xffffffff, -EPROTO, 0 },
	};
	struct env *e = new_env(0);

	vq_stop(&e->dev);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t used = cases[i].stands >> 16;

		assert_int_equal(env_start(e, cases[i].base), cases[i].ret);
		if (cases[i].ret < 0) {
			assert_int_equal(vq_base(&e->dev), cases[i].base);
			continue;
		}
		assert_int_equal(vq_base(&e->dev), used << 16 | used);
		vq_stop(&e->dev);
		assert_int_equal(vq_base(&e->dev), used << 16 | used);
	}
	env_free(e);
}

/* A base of 0 may also be what it says: after a lap. */
static void test_base_of_zero(void **state)
{
	struct env *e = new_env(0);

	for (unsigned used = 0; used < 2; used++) {
		for (unsigned i = 0; i < NUM; i++)
			put(e, i, BUF_GPA, 10, used ? VRING_PACKED_DESC_F_USED : 0, i);
		vq_stop(&e->dev);
		assert_int_equal(env_start(e, 0), 0);
		assert_int_equal(vq_base(&e->dev), used ? 0 : 0x80008000);
		assert_int_equal(vq_pending(&e->dev, NUM), used ? 0 : NUM);
	}
	env_free(e);
}

/* Field cases 55 to 57: what was given back is not skipped, and the ring goes on round its end. */
static void test_base_over_restart(void **state)
{
	struct env *e = new_env(0);
	size_t added = 0, got = 0;

	for (unsigned n = 0; n < 100; n++) {
		uint32_t base;

		while (env_add(e, 64, true, added) == 0)
			added++;
		drvq_publish(&e->drv);
		assert_int_equal(env_serve(e, 3, 1), 3);
		assert_int_equal(env_pop(e, 4), 4);
		vq_unpop(&e->dev, 3);
		env_push(e, e->chains, 1);
		vq_flush(&e->dev);
		base = vq_base(&e->dev);
		vq_stop(&e->dev);
		assert_int_equal(vq_base(&e->dev), base);
		assert_int_equal(env_start(e, base), 0);
		for (unsigned i = 0; i < 4; i++)
			env_expect_used(e, got++, 1);
		env_expect_none(e);
	}
	assert_int_equal(env_serve(e, NUM, 1), added - got);
	env_free(e);
}

/* Field cases 95 and 102: kicks are asked for at once, whatever an earlier run left. */
static void test_start_asks_for_kicks(void **state)
{
	struct env *e = new_env(EVENT_IDX);

	vq_stop(&e->dev);
	le32_set(&e->drv.packed.device->place_flags, VRING_PACKED_EVENT_DISABLE << 16);
	assert_int_equal(env_start(e, 0x80008000), 0);
	assert_int_equal(env_add(e, 8, false, 0), 0);
	expect(drvq_publish(&e->drv));
	assert_int_equal(env_serve(e, 1, 0), 1);
	env_free(e);
}

/* ---- chains ---- */

/* A buffer ID may be any number, and comes back as it is; the ring's own bits are not the chain's. */
static void test_ids(void **state)
{
	struct env *e = new_env(0);
	const unsigned ids[] = { 0xffff, NUM, 0, 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
		put(e, 2 * i, BUF_GPA, 10, VRING_DESC_F_NEXT, 77);
		put(e, 2 * i + 1, BUF_GPA, 20, VRING_DESC_F_WRITE, ids[i]);
	}
	assert_int_equal(env_pop(e, NUM), 4);
	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
		assert_int_equal(e->chains[i].err, 0);
		assert_int_equal(e->chains[i].head, ids[i]);
		assert_int_equal(e->chains[i].out_len, 10);
		assert_int_equal(e->chains[i].in_len, 20);
		env_push(e, &e->chains[i], i);
	}
	/* Nothing is the driver's before the flush: it looks at the first place only. */
	assert_int_equal(flags_at(e, 0) & VRING_PACKED_DESC_F_STATE, VRING_PACKED_DESC_F_AVAIL);
	vq_flush(&e->dev);
	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
		uint16_t written = i > 0 ? VRING_DESC_F_WRITE : 0; /* 2.8.4 */

		assert_int_equal(flags_at(e, 2 * i), VRING_PACKED_DESC_F_STATE | written);
		assert_int_equal(le16_get(&e->drv.packed.desc[2 * i].id), ids[i]);
		assert_int_equal(le32_get(&e->drv.packed.desc[2 * i].len), i);
	}
	env_free(e);
}

/* 2.8.7: of a table's entry neither NEXT nor the ring's bits nor the ID mean anything. */
static void test_table(void **state)
{
	struct env *e = new_env(INDIRECT);
	struct vring_packed_desc *t = env_ptr(e, TABLE_GPA);

	for (unsigned i = 0; i < 3; i++) {
		le64_set(&t[i].addr, BUF_GPA + i * 100ULL);
		le32_set(&t[i].len, 10 + i);
		le16_set(&t[i].id, 999);
		le16_set(&t[i].flags, i == 2 ? 0xffff : (uint16_t)~VRING_DESC_F_WRITE);
	}
	put(e, 0, TABLE_GPA, 48, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE, 5);
	put(e, 1, BUF_GPA, 7, 0, 6);
	assert_int_equal(env_serve(e, NUM, 0), 2);
	assert_int_equal(e->chains[0].err, 0);
	assert_int_equal(e->chains[0].head, 5);
	assert_int_equal(e->chains[0].out_len, 21);
	assert_int_equal(e->chains[0].in_len, 12);
	assert_int_equal(e->chains[1].out_len, 7);
	env_free(e);
}

/* Field case 4: a table and its buffers over the seam of two regions. */
static void test_table_across_the_seam(void **state)
{
	for (unsigned cut = 0; cut <= 48; cut++) {
		struct env *e = new_env(INDIRECT);
		struct vring_packed_desc t[3];

		memset(t, 0, sizeof(t));
		for (unsigned i = 0; i < 3; i++) {
			le64_set(&t[i].addr, SEAM - 50);
			le32_set(&t[i].len, 100);
			le16_set(&t[i].flags, i < 2 ? 0 : VRING_DESC_F_WRITE);
		}
		env_write(e, SEAM + 0x1000 - cut, t, sizeof(t));
		put(e, 0, SEAM + 0x1000 - cut, sizeof(t), VRING_DESC_F_INDIRECT, 0);
		pop_one(e, 0);
		assert_int_equal(e->chains[0].out_cnt, 4);
		assert_int_equal(e->chains[0].in_cnt, 2);
		env_push(e, e->chains, 0);
		vq_flush(&e->dev);
		env_free(e);
	}
}

/* A bad chain is returned like any other, and the one behind it is found. */
static void test_bad_chains(void **state)
{
	const struct {
		uint64_t addr;
		uint32_t len;
		unsigned flags; /* of the first of three, the next are good */
		unsigned second;
		int err;
	} bad[] = {
		{ NO_GPA, 10, 0, 0, -EFAULT },
		{ END_GPA - 1, 2, 0, 0, -EFAULT },
		{ ~0ULL, 2, 0, 0, -EFAULT },
		{ BUF_GPA, 10, VRING_DESC_F_WRITE, 0, -EINVAL },
		{ TABLE_GPA, 16, VRING_DESC_F_INDIRECT, 0, -EINVAL },
		{ BUF_GPA, 10, 0, VRING_DESC_F_INDIRECT, -EINVAL },
	};
	const uint32_t bad_tables[] = { 0, 8, 17, 16 * (VQ_NUM_MAX + 1) };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct env *e = new_env(INDIRECT);

		put(e, 0, bad[i].addr, bad[i].len, bad[i].flags | VRING_DESC_F_NEXT, 0);
		put(e, 1, TABLE_GPA, 16, bad[i].second | VRING_DESC_F_NEXT, 0);
		put(e, 2, BUF_GPA, 10, 0, 3);
		put(e, 3, BUF_GPA, 11, 0, 4);
		assert_int_equal(env_serve(e, NUM, 0), 2);
		assert_int_equal(e->chains[0].err, bad[i].err);
		assert_int_equal(e->chains[0].head, 3);
		assert_int_equal(e->chains[1].err, 0);
		assert_int_equal(e->chains[1].out_len, 11);
		env_free(e);
	}
	for (size_t i = 0; i <= ARRAY_SIZE(bad_tables); i++) {
		bool acked = i < ARRAY_SIZE(bad_tables);
		struct env *e = new_env(acked ? INDIRECT : 0);

		put(e, 0, TABLE_GPA, acked ? bad_tables[i] : 16, VRING_DESC_F_INDIRECT, 1);
		put(e, 1, BUF_GPA, 11, 0, 2);
		assert_int_equal(env_serve(e, NUM, 0), 2);
		assert_int_equal(e->chains[0].err, i == 3 ? -ELOOP : -EINVAL);
		assert_int_equal(e->chains[1].err, 0);
		env_free(e);
	}
}

/* ---- rings that are bad ---- */

/* A chain without an end, or longer than what the driver can have: nobody knows where the next one is. */
static void test_endless(void **state)
{
	for (unsigned held = 0; held < NUM; held++) {
		struct env *e = new_env(0);

		for (unsigned i = 0; i < NUM; i++)
			put(e, i, BUF_GPA, 1, i < held ? 0 : VRING_DESC_F_NEXT, i);
		if (held > 0)
			assert_int_equal(env_pop(e, held), held);
		assert_int_equal(vq_pop(&e->dev, e->chains + held, 1, &e->iovs), -EPROTO);
		expect(e->dev.broken);
		expect(!vq_kick_on(&e->dev));
		assert_int_equal(vq_pending(&e->dev, NUM), -EPROTO);
		/* What we hold can be returned. */
		for (unsigned i = 0; i < held; i++)
			env_push(e, &e->chains[i], 0);
		vq_flush(&e->dev);
		env_free(e);
	}
}

/* A whole ring that we hold, and its first descriptor is available again. */
static void test_more_out_than_there_are(void **state)
{
	struct env *e = new_env(0);

	for (unsigned i = 0; i < NUM; i++)
		put(e, i, BUF_GPA, 1, 0, i);
	assert_int_equal(env_pop(e, NUM), NUM);
	le16_set(&e->drv.packed.desc[0].flags, VRING_PACKED_DESC_F_USED); /* of the second lap */
	assert_int_equal(vq_pop(&e->dev, e->chains + NUM, 1, &e->iovs), -EPROTO);
	for (unsigned i = 0; i < NUM; i++)
		env_push(e, &e->chains[i], 0);
	vq_flush(&e->dev);
	env_free(e);
}

static void test_memory_goes_away(void **state)
{
	struct env *e = new_env(0);

	assert_int_equal(mem_guard_install(), 0);
	assert_int_equal(env_add(e, 10, false, 1), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_pop(e, 1), 1);
	assert_int_equal(ftruncate(e->fd, 0), 0);
	/* Touched, and broken by that. */
	(void)vq_peek(&e->dev);
	assert_int_equal(vq_pending(&e->dev, NUM), -EPROTO);
	assert_int_equal(env_pop(e, 1), -EPROTO);
	env_push(e, e->chains, 0);
	vq_flush(&e->dev);
	assert_int_equal(ftruncate(e->fd, FILE_LEN), 0);
	env_put_canaries(e);
	env_free(e);
}

/* ---- a device written by hand ---- */

static void use(struct env *e, unsigned pos, unsigned id, uint32_t len)
{
	struct vring_packed_desc *d = &e->drv.packed.desc[pos];

	le16_set(&d->id, (uint16_t)id);
	le32_set(&d->len, len);
	le16_store(&d->flags, VRING_PACKED_DESC_F_STATE | VRING_DESC_F_WRITE, memory_order_release);
}

static void expect_refused(struct env *e)
{
	struct drvq_used used;

	assert_int_equal(drvq_get(&e->drv, &used), -EPROTO);
}

/* Four chains of 100 bytes to write, one of them of two descriptors, and one unpublished. */
static struct env *hostile_new(uint64_t features)
{
	const struct drvq_buf bufs[2] = { { { BUF_GPA }, 10 }, { { BUF_GPA }, 100 } };
	struct env *e = new_env(features);

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(env_add(e, 100, true, i), 0);
	assert_int_equal(drvq_add(&e->drv, bufs, 1, 1, token_ptr(3)), 0);
	drvq_publish(&e->drv);
	assert_int_equal(env_add(e, 100, true, 4), 0);
	return e;
}

static void test_hostile_elements(void **state)
{
	const struct {
		unsigned id;
		uint32_t len;
	} bad[] = {
		{ NUM, 0 },          { 0xffff, 0 }, { 4, 0 } /* unpublished */,
		{ 5, 0 } /* free */, { 0, 101 },    { 0, ~0U },
		{ 3, 110 },
	};
	struct env *e;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		for (unsigned in_order = 0; in_order < 2; in_order++) {
			struct drvq_used used;
			int ret = 1;

			e = hostile_new(in_order ? IN_ORDER : 0);
			use(e, 0, bad[i].id, bad[i].len);
			/* In order it may stand for those before it, which are good then. */
			for (unsigned n = 0; ret == 1 && n < 4; n++)
				ret = drvq_get(&e->drv, &used);
			assert_int_equal(ret, -EPROTO);
			env_free(e);
		}
	}
	e = hostile_new(0);
	use(e, 0, 2, 100);
	use(e, 1, 2, 100); /* twice */
	env_expect_used(e, 2, 100);
	expect_refused(e);
	env_free(e);
	/* A chain of two descriptors is one element; the next stands two places on. */
	e = hostile_new(0);
	use(e, 0, 3, 100);
	use(e, 2, 0, 7);
	env_expect_used(e, 3, 100);
	env_expect_used(e, 0, 7);
	env_expect_none(e);
	env_free(e);
	/* Nothing is out. */
	e = new_env(0);
	use(e, 0, 0, 0);
	expect_refused(e);
	env_free(e);
}

/* 2.8.8: one element for a batch, in the place of its first chain; the others are used completely. */
static void test_in_order_batches(void **state)
{
	struct env *e = new_env(IN_ORDER);
	size_t token = 0, next = 0;
	uint16_t place = VRING_PACKED_START;

	for (unsigned n = 0; n < 2000; n++) {
		unsigned cnt = n % NUM + 1;
		uint16_t id = 0;
		struct vring_packed_desc *d = &e->drv.packed.desc[vring_packed_pos(place)];

		for (unsigned i = 0; i < cnt; i++) {
			id = e->drv.free_head;
			assert_int_equal(env_add(e, 100, true, token++), 0);
		}
		drvq_publish(&e->drv);
		le16_set(&d->id, id);
		le32_set(&d->len, 9);
		le16_store(&d->flags, vring_packed_used(place) | VRING_DESC_F_WRITE,
			   memory_order_release);
		place = vring_packed_step(place, cnt, NUM);
		for (unsigned i = 0; i < cnt; i++)
			env_expect_used(e, next++, i == cnt - 1 ? 9 : 100);
		env_expect_none(e);
	}
	assert_int_equal(drvq_out(&e->drv), 0);
	env_free(e);
}

/* ---- signals ---- */

/* Field case 93: for every place that can be asked for, every step, in rings of every small size. */
static void test_need_event(void **state)
{
	for (unsigned num = 1; num <= 7; num++) {
		uint16_t from = VRING_PACKED_START;

		for (unsigned at = 0; at < 2 * num; at++) {
			for (unsigned cnt = 1; cnt <= num; cnt++) {
				uint16_t asked = VRING_PACKED_START,
					 to = vring_packed_step(from, cnt, num);

				for (unsigned i = 0; i < 2 * num; i++) {
					/* Is it one of those that changed? With a whole lap any is. */
					bool crossed = vring_packed_ahead(from, asked, num) < cnt ||
						       cnt == num;

					assert_int_equal(vring_packed_need_event(
								 VRING_PACKED_EVENT_DESC << 16 |
									 asked,
								 true, to, cnt, num),
							 crossed);
					asked = vring_packed_step(asked, 1, num);
				}
			}
			from = vring_packed_step(from, 1, num);
		}
		assert_int_equal(from, VRING_PACKED_START);
	}
	/* Without EVENT_IDX a place is not believed (2.8.10). */
	expect(vring_packed_need_event(VRING_PACKED_EVENT_DESC << 16 | 0x8005, false, 0x8001, 1,
				       8));
	expect(!vring_packed_need_event(VRING_PACKED_EVENT_DISABLE << 16, true, 0x8001, 1, 8));
	expect(vring_packed_need_event(VRING_PACKED_EVENT_ENABLE << 16, true, 0x8001, 1, 8));
}

/* Calls that are put off add up, also over more than a lap. */
static void test_unsignalled(void **state)
{
	struct env *e = new_env(EVENT_IDX);

	expect(env_notify(e)); /* the first */
	/* The driver asks for the very next one, then finds all by itself. */
	expect(!drvq_call_on(&e->drv));
	for (unsigned n = 0; n < 3 * NUM; n++) {
		assert_int_equal(env_add(e, 8, false, 0), 0);
		drvq_publish(&e->drv);
		assert_int_equal(env_serve(e, 1, 0), 1);
		env_expect_used(e, 0, 0);
		expect(vq_wants_notify(&e->dev));
		assert_int_equal(vq_unnotified(&e->dev), n + 1);
	}
	vq_notified(&e->dev);
	expect(!vq_wants_notify(&e->dev));
	env_free(e);
}

/* A device that never sleeps is not kicked. */
static void test_kicks_while_polling(void **state)
{
	struct env *e = new_env(EVENT_IDX);

	for (unsigned n = 0; n < 1000; n++) {
		vq_kick_off(&e->dev);
		assert_int_equal(env_add(e, 8, false, n), 0);
		expect(!drvq_publish(&e->drv));
		assert_int_equal(env_serve(e, NUM, 0), 1);
		env_expect_used(e, n, 0);
	}
	env_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_base),
		cmocka_unit_test(test_base_of_zero),
		cmocka_unit_test(test_base_over_restart),
		cmocka_unit_test(test_start_asks_for_kicks),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_table_across_the_seam),
		cmocka_unit_test(test_bad_chains),
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_more_out_than_there_are),
		cmocka_unit_test(test_memory_goes_away),
		cmocka_unit_test(test_hostile_elements),
		cmocka_unit_test(test_in_order_batches),
		cmocka_unit_test(test_need_event),
		cmocka_unit_test(test_unsignalled),
		cmocka_unit_test(test_kicks_while_polling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
