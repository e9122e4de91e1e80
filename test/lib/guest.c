// SPDX-License-Identifier: BSD-2-Clause
/* A guest in a test. */
#include "guest.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "daemon.h"

#define PAGE        4096ULL
#define UVA         0x7a0000000000ULL
#define HOLE        (1ULL << 30)
#define MAC_LEN     6
#define FRAME_ROOM  (VIRTIO_NET_HDR_LEN + 2 * 65536)
#define CHAIN_MAX   1024
#define CTRL_NUM    16
#define CTRL_STRIDE 8192
#define SPARE_BYTES (4ULL << 20)

/* ---- memory ---- */

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t slot_stride(uint32_t len)
{
	return (uint32_t)round_up(len + CHAIN_MAX + 32 * GUEST_GAP, 64) + 1;
}

static void set_region(struct guest *g, unsigned i, uint64_t gpa, uint64_t size, uint64_t offset)
{
	void *at = g->window + (gpa - GUEST_GPA);

	g->regions[i] = (struct vhost_user_region){
		.guest_addr = gpa,
		.size = size,
		.user_addr = UVA + (g->region_cnt - 1 - i) * (16ULL << 30),
		.mmap_offset = offset,
	};
	at = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g->memfd,
		  (off_t)offset);
	MUST(at != MAP_FAILED);
}

/* One region, or two, of which the second comes first in the file. */
static void make_memory(struct guest *g, size_t first, size_t second)
{
	uint64_t hole = g->cfg.layout == GUEST_HOLE ? HOLE : 0;
	size_t len;

	first = round_up(first, PAGE);
	second = round_up(second, PAGE);
	len = first + second;
	g->region_cnt = g->cfg.layout == GUEST_ONE ? 1 : 2;
	g->window_len = len + hole;
	g->file_len = len + 2 * PAGE;
	g->memfd = memfd_create("guest", MFD_CLOEXEC);
	MUST(g->memfd >= 0 && ftruncate(g->memfd, (off_t)g->file_len) == 0);
	g->window = mmap(NULL, g->window_len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(g->window != MAP_FAILED);
	if (g->region_cnt == 1) {
		set_region(g, 0, GUEST_GPA, len, PAGE);
	} else {
		set_region(g, 0, GUEST_GPA, first, second + PAGE);
		set_region(g, 1, GUEST_GPA + first + hole, second, 0);
	}
	g->alloc_at = GUEST_GPA;
}

uint64_t guest_alloc(struct guest *g, size_t len, size_t align)
{
	const struct vhost_user_region *first = &g->regions[0];
	uint64_t at = round_up(g->alloc_at, align);

	/* Nothing lies across a hole. */
	if (g->cfg.layout == GUEST_HOLE && at < first->guest_addr + first->size &&
	    at + len > first->guest_addr + first->size)
		at = g->regions[1].guest_addr;
	g->alloc_at = at + len;
	if (g->alloc_at > GUEST_GPA + g->window_len)
		FAIL("out of guest memory");
	return at;
}

void *guest_at(struct guest *g, uint64_t gpa)
{
	MUST(gpa - GUEST_GPA < g->window_len);
	return g->window + (gpa - GUEST_GPA);
}

uint64_t guest_uva(struct guest *g, uint64_t gpa)
{
	for (unsigned i = 0; i < g->region_cnt; i++) {
		if (gpa - g->regions[i].guest_addr < g->regions[i].size)
			return g->regions[i].user_addr + (gpa - g->regions[i].guest_addr);
	}
	FAIL("no memory at %#llx", (unsigned long long)gpa);
}

static void *check_at(void *ctx, uint64_t gpa, uint64_t len)
{
	struct guest *g = ctx;

	if (gpa < GUEST_GPA || len > g->window_len || gpa - GUEST_GPA > g->window_len - len)
		return NULL;
	return g->window + (gpa - GUEST_GPA);
}

static bool has(const struct guest *g, uint64_t feature)
{
	return (g->features & feature) != 0;
}

/* Indirect tables are as long as a chain can be for small rings, and moderate for large ones. */
static uint16_t table_len(uint16_t num)
{
	return num < 64 ? num : 64;
}

static void lay_ring(struct guest *g, struct guest_ring *r)
{
	static const char *const names[] = { "rx", "tx", "ctrl" };
	struct drvq_indirect table = { guest_at(g, r->table), { r->table }, table_len(r->num) };

	OK(drvq_init(&r->q, guest_at(g, r->gpa), r->num, g->features, &table));
	check_init(&r->chk, names[r->idx], r->q.split.desc, r->q.split.avail, r->q.split.used,
		   r->num, has(g, F_IN_ORDER));
	r->chk.at = check_at;
	r->chk.ctx = g;
	r->spare_first = 0;
	r->spare_cnt = r->num;
	for (uint16_t i = 0; i < r->num; i++)
		r->spare[i] = i;
	drvq_call_off(&r->q);
}

static size_t ring_bytes(uint16_t num)
{
	size_t avail, used;

	return drvq_ring_bytes(num, &avail, &used);
}

static size_t table_bytes(uint16_t num)
{
	return (size_t)num * table_len(num) * sizeof(struct vring_desc);
}

static void make_ring(struct guest *g, unsigned idx, uint16_t num, uint32_t stride)
{
	struct guest_ring *r = &g->rings[idx];

	*r = (struct guest_ring){ .guest = g, .idx = idx, .num = num, .stride = stride };
	r->slots = calloc(num, sizeof(r->slots[0]));
	r->spare = calloc(num, sizeof(r->spare[0]));
	r->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->err = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	MUST(r->slots != NULL && r->spare != NULL && r->kick >= 0 && r->call >= 0 && r->err >= 0);
	r->gpa = guest_alloc(g, ring_bytes(num), 64);
	r->table = guest_alloc(g, table_bytes(num), 16);
	lay_ring(g, r);
}

/* At odd addresses; one of them lies across the seam. */
static void make_slots(struct guest *g)
{
	for (unsigned i = 0; i < g->ring_cnt; i++) {
		struct guest_ring *r = &g->rings[i];

		for (unsigned j = 0; j < r->num; j++)
			r->slots[j].gpa = guest_alloc(g, r->stride, 1);
	}
}

static void free_ring(struct guest_ring *r)
{
	for (unsigned i = 0; i < r->num; i++)
		free(r->slots[i].bufs);
	free(r->slots);
	free(r->spare);
	drvq_fini(&r->q);
	check_fini(&r->chk);
	fd_close(&r->kick);
	fd_close(&r->call);
	fd_close(&r->err);
}

static void apply_defaults(struct guest_cfg *cfg)
{
	cfg->features = cfg->features != 0 ? cfg->features : F_DEFAULT;
	cfg->protocol = cfg->protocol != 0 ? cfg->protocol : P_DEFAULT;
	cfg->rx_num = cfg->rx_num != 0 ? cfg->rx_num : 256;
	cfg->tx_num = cfg->tx_num != 0 ? cfg->tx_num : 256;
	cfg->rx_buf = cfg->rx_buf != 0 ? cfg->rx_buf : 2048;
	cfg->tx_max = cfg->tx_max != 0 ? cfg->tx_max : 1514;
	if (cfg->ctrl)
		cfg->features |= BIT(VIRTIO_NET_F_CTRL_VQ) | BIT(VIRTIO_NET_F_CTRL_RX);
}

void guest_make(struct guest *g, const struct guest_cfg *cfg)
{
	uint32_t rx_stride, tx_stride;
	size_t buffers, rings;

	*g = (struct guest){ .cfg = cfg != NULL ? *cfg : (struct guest_cfg){ 0 }, .seed = 1 };
	apply_defaults(&g->cfg);
	g->fe.fd = -1;
	g->features = g->cfg.features;
	g->hdr_len = has(g, F_VERSION_1 | F_MRG) ? VIRTIO_NET_HDR_LEN : VIRTIO_NET_HDR_LEN_LEGACY;
	g->asm_buf = malloc(FRAME_ROOM);
	MUST(g->asm_buf != NULL);
	rx_stride = slot_stride(g->cfg.rx_buf);
	tx_stride = slot_stride(g->cfg.tx_max + VIRTIO_NET_HDR_LEN);
	buffers = (size_t)rx_stride * g->cfg.rx_num + (size_t)tx_stride * g->cfg.tx_num;
	rings = ring_bytes(g->cfg.rx_num) + table_bytes(g->cfg.rx_num) + ring_bytes(g->cfg.tx_num) +
		table_bytes(g->cfg.tx_num) + CTRL_NUM * CTRL_STRIDE;
	/* No ring lies across the seam, some buffer does; the rest is for the tests' own. */
	make_memory(g, rings + buffers / 2, buffers / 2 + SPARE_BYTES);
	g->ring_cnt = g->cfg.ctrl ? 3 : 2;
	make_ring(g, GUEST_RX, g->cfg.rx_num, rx_stride);
	make_ring(g, GUEST_TX, g->cfg.tx_num, tx_stride);
	if (g->cfg.ctrl)
		make_ring(g, GUEST_CTRL, CTRL_NUM, CTRL_STRIDE);
	make_slots(g);
}

void guest_free(struct guest *g)
{
	guest_disconnect(g);
	for (unsigned i = 0; i < g->ring_cnt; i++)
		free_ring(&g->rings[i]);
	munmap(g->window, g->window_len);
	fd_close(&g->memfd);
	free(g->asm_buf);
}

/* ---- set-up ---- */

void guest_connect(struct guest *g, const char *path)
{
	OK(vu_frontend_connect(&g->fe, path, (int)test_patience_ms()));
}

void guest_disconnect(struct guest *g)
{
	if (g->fe.fd >= 0)
		vu_frontend_close(&g->fe);
}

void guest_get_features(struct guest *g)
{
	uint64_t missing;

	OK(vu_frontend_get_u64(&g->fe, VHOST_USER_GET_FEATURES, &g->offered));
	missing = g->cfg.features & ~g->offered;
	if (missing != 0)
		FAIL("features %#llx are not offered", (unsigned long long)missing);
}

void guest_protocol(struct guest *g)
{
	uint64_t offered;

	OK(vu_frontend_get_u64(&g->fe, VHOST_USER_GET_PROTOCOL_FEATURES, &offered));
	MUST((g->cfg.protocol & ~offered) == 0);
	OK(vu_frontend_set_protocol_features(&g->fe, g->cfg.protocol));
}

void guest_ack(struct guest *g)
{
	OK(vu_frontend_set_u64(&g->fe, VHOST_USER_SET_FEATURES, g->features));
}

void guest_set_mem(struct guest *g)
{
	int fds[GUEST_REGION_MAX] = { g->memfd, g->memfd };

	OK(vu_frontend_set_mem(&g->fe, g->regions, fds, g->region_cnt));
}

void guest_ring_msg(struct guest *g, unsigned idx, uint32_t request)
{
	struct guest_ring *r = &g->rings[idx];
	struct vhost_user_vring_addr addr = { .index = idx, .log = ~0ULL };
	size_t avail, used;

	drvq_ring_bytes(r->num, &avail, &used);
	switch (request) {
	case VHOST_USER_SET_VRING_NUM:
		OK(vu_frontend_vring_state(&g->fe, request, idx, r->num));
		break;
	case VHOST_USER_SET_VRING_BASE:
		OK(vu_frontend_vring_state(&g->fe, request, idx, r->chk.used_idx));
		break;
	case VHOST_USER_SET_VRING_ADDR:
		addr.desc = guest_uva(g, r->gpa);
		addr.avail = guest_uva(g, r->gpa + avail);
		addr.used = guest_uva(g, r->gpa + used);
		OK(vu_frontend_vring_addr(&g->fe, &addr));
		break;
	case VHOST_USER_SET_VRING_KICK:
		OK(vu_frontend_vring_fd(&g->fe, request, idx, r->kick));
		break;
	case VHOST_USER_SET_VRING_CALL:
		OK(vu_frontend_vring_fd(&g->fe, request, idx, r->call));
		break;
	case VHOST_USER_SET_VRING_ERR:
		OK(vu_frontend_vring_fd(&g->fe, request, idx, r->err));
		break;
	case VHOST_USER_SET_VRING_ENABLE:
		guest_enable(g, idx, true);
		break;
	default:
		FAIL("request %u is not for a ring", request);
	}
}

void guest_enable(struct guest *g, unsigned idx, bool on)
{
	OK(vu_frontend_vring_state(&g->fe, VHOST_USER_SET_VRING_ENABLE, idx, on));
}

void guest_start_ring(struct guest *g, unsigned idx)
{
	static const uint32_t order[] = {
		VHOST_USER_SET_VRING_NUM,  VHOST_USER_SET_VRING_BASE, VHOST_USER_SET_VRING_ADDR,
		VHOST_USER_SET_VRING_CALL, VHOST_USER_SET_VRING_ERR,  VHOST_USER_SET_VRING_KICK,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
		guest_ring_msg(g, idx, order[i]);
	if (has(g, F_PROTOCOL))
		guest_enable(g, idx, true);
}

void guest_set_up(struct guest *g)
{
	guest_get_features(g);
	if (has(g, F_PROTOCOL))
		guest_protocol(g);
	OK(vu_frontend_request(&g->fe, &(struct vhost_user_hdr){ .request = VHOST_USER_SET_OWNER },
			       NULL, NULL, 0));
	guest_ack(g);
	guest_set_mem(g);
	for (unsigned i = 0; i < g->ring_cnt; i++)
		guest_start_ring(g, i);
}

void guest_up(struct guest *g, const struct guest_cfg *cfg, const char *path)
{
	guest_make(g, cfg);
	guest_connect(g, path);
	if (!g->cfg.no_refill)
		guest_refill(g);
	guest_set_up(g);
}

uint32_t guest_stop_ring(struct guest *g, unsigned idx)
{
	struct guest_ring *r = &g->rings[idx];
	uint32_t base;

	OK(vu_frontend_get_vring_base(&g->fe, idx, &base));
	check_stopped(&r->chk, base);
	return base;
}

void guest_down(struct guest *g)
{
	for (unsigned i = 0; i < g->ring_cnt; i++)
		guest_stop_ring(g, i);
	guest_reap(g);
	/* What a transmit queue took is back, and nothing is left that a kick was due for. */
	EQ(check_out(&g->rings[GUEST_TX].chk), 0);
	guest_free(g);
}

void guest_reset_ring(struct guest *g, unsigned idx)
{
	struct guest_ring *r = &g->rings[idx];

	check_fini(&r->chk);
	drvq_fini(&r->q);
	lay_ring(g, r);
	if (idx == GUEST_RX) {
		g->asm_left = g->asm_len = g->asm_cnt = 0;
		g->rcvd_idx = g->sent_idx;
	}
	if (idx == GUEST_TX)
		g->tx_back = 0;
}

#define SCRIBBLE 0x5c

/* The runs of memory that were handed out: each of them lies in one region. */
static size_t used_in(const struct guest *g, unsigned i)
{
	const struct vhost_user_region *r = &g->regions[i];

	if (g->alloc_at <= r->guest_addr)
		return 0;
	return min_size(r->size, g->alloc_at - r->guest_addr);
}

void guest_scribble(struct guest *g)
{
	for (unsigned i = 0; i < g->region_cnt; i++)
		memset(guest_at(g, g->regions[i].guest_addr), SCRIBBLE, used_in(g, i));
}

void guest_untouched(struct guest *g)
{
	for (unsigned i = 0; i < g->region_cnt; i++) {
		const uint8_t *p = guest_at(g, g->regions[i].guest_addr);

		for (size_t at = 0; at < used_in(g, i); at++) {
			if (p[at] != SCRIBBLE)
				FAIL("the daemon wrote %#x at %#zx of region %u", p[at], at, i);
		}
	}
}

/* ---- frames ---- */

void frame_fill(uint8_t *frame, uint32_t len, uint32_t seed)
{
	uint32_t x = seed * 2654435761U + 12345;

	for (uint32_t i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		frame[i] = (uint8_t)(x >> 24);
	}
	/* Addresses are unicast, and tell the two apart. */
	if (len >= 2 * MAC_LEN) {
		frame[0] = 0x02;
		frame[MAC_LEN] = 0x06;
	}
}

void frame_swap(uint8_t *frame)
{
	uint8_t mac[MAC_LEN];

	memcpy(mac, frame, MAC_LEN);
	memcpy(frame, frame + MAC_LEN, MAC_LEN);
	memcpy(frame + MAC_LEN, mac, MAC_LEN);
}

struct guest_slot *guest_spare(struct guest_ring *r)
{
	return r->spare_cnt == 0 ? NULL : &r->slots[r->spare[r->spare_first]];
}

void guest_take_spare(struct guest_ring *r)
{
	MUST(r->spare_cnt > 0);
	r->spare_first = (r->spare_first + 1) % r->num;
	r->spare_cnt--;
}

static void give_spare(struct guest_ring *r, const struct guest_slot *slot)
{
	r->spare[(r->spare_first + r->spare_cnt++) % r->num] = (uint16_t)(slot - r->slots);
}

/* Lays @len bytes out as the pieces of a chain, gaps between them; copies @bytes there (NULL: fills
 * with PREFILL). The slot, or NULL when the ring is full. */
static struct guest_slot *lay_chain(struct guest_ring *r, const void *bytes, const uint32_t *lens,
				    unsigned cnt)
{
	struct guest_slot *slot = guest_spare(r);
	uint32_t gap = cnt > 32 ? 1 : GUEST_GAP;
	uint64_t at;

	if (slot == NULL)
		return NULL;
	if (slot->bufs == NULL)
		slot->bufs = malloc(CHAIN_MAX * sizeof(slot->bufs[0]));
	MUST(slot->bufs != NULL && cnt <= CHAIN_MAX);
	at = slot->gpa;
	slot->cnt = (uint16_t)cnt;
	for (unsigned i = 0; i < cnt; i++) {
		slot->bufs[i] = (struct drvq_buf){ { at }, lens[i] };
		at += lens[i] + gap;
	}
	slot->len = (uint32_t)(at - slot->gpa);
	if (slot->len > r->stride)
		FAIL("a chain of %u bytes in a slot of %u", slot->len, r->stride);
	if (bytes == NULL)
		memset(guest_at(r->guest, slot->gpa), PREFILL, slot->len);
	for (unsigned i = 0; bytes != NULL && i < cnt; i++) {
		memcpy(guest_at(r->guest, slot->bufs[i].addr.v), bytes, lens[i]);
		bytes = (const char *)bytes + lens[i];
	}
	return slot;
}

static bool add_chain(struct guest_ring *r, struct guest_slot *slot, unsigned out_cnt)
{
	if (slot == NULL ||
	    drvq_add(&r->q, slot->bufs, out_cnt, slot->cnt - out_cnt, slot) == -ENOSPC)
		return false;
	guest_take_spare(r);
	return true;
}

bool guest_send_raw(struct guest *g, const void *bytes, uint32_t len, const uint32_t *cuts,
		    unsigned cnt)
{
	struct guest_ring *r = &g->rings[GUEST_TX];
	uint32_t lens[CHAIN_MAX], left = len;
	unsigned n = 0;

	for (; n < cnt; n++) {
		lens[n] = cuts[n];
		MUST(cuts[n] <= left);
		left -= cuts[n];
	}
	if (left > 0 || n == 0)
		lens[n++] = left;
	return add_chain(r, lay_chain(r, bytes, lens, n), n);
}

bool guest_send(struct guest *g, uint32_t len, const struct virtio_net_hdr *hdr,
		const uint32_t *cuts, unsigned cnt)
{
	static _Thread_local uint8_t bytes[FRAME_ROOM];
	struct guest_sent *sent = &g->sent[g->sent_idx % GUEST_SENT_MAX];

	MUST(g->sent_idx - g->rcvd_idx < GUEST_SENT_MAX && len <= 2 * 65536);
	*sent = (struct guest_sent){ .len = len, .seed = g->seed };
	if (hdr != NULL)
		sent->hdr = *hdr;
	memcpy(bytes, &sent->hdr, g->hdr_len);
	frame_fill(bytes + g->hdr_len, len, g->seed);
	if (!guest_send_raw(g, bytes, g->hdr_len + len, cuts, cnt))
		return false;
	g->sent_idx++;
	g->seed++;
	return true;
}

bool guest_post(struct guest *g, const uint32_t *lens, unsigned cnt)
{
	struct guest_ring *r = &g->rings[GUEST_RX];

	return add_chain(r, lay_chain(r, NULL, lens, cnt), 0);
}

void guest_refill(struct guest *g)
{
	while (guest_post(g, &g->cfg.rx_buf, 1))
		;
	guest_kick(g, GUEST_RX);
}

bool guest_publish(struct guest *g, unsigned idx)
{
	struct guest_ring *r = &g->rings[idx];
	bool wanted = drvq_publish(&r->q);

	check_avail(&r->chk);
	return wanted;
}

void guest_kick(struct guest *g, unsigned idx)
{
	struct guest_ring *r = &g->rings[idx];

	if (guest_publish(g, idx)) {
		r->kicks++;
		OK(eventfd_write(r->kick, 1));
	}
}

void guest_flood(struct guest *g, unsigned cnt, uint32_t len)
{
	uint8_t bytes[VIRTIO_NET_HDR_LEN + 2048] = { 0 };

	MUST(len <= 2048);
	frame_fill(bytes + g->hdr_len, len, cnt);
	for (unsigned i = 0; i < cnt; i++)
		MUST(guest_send_raw(g, bytes, g->hdr_len + len, NULL, 0));
	guest_kick(g, GUEST_TX);
}

/* ---- what comes back ---- */

static void match_sent(struct guest *g, const struct virtio_net_hdr *hdr, const uint8_t *frame,
		       uint32_t len)
{
	static _Thread_local uint8_t bytes[FRAME_ROOM];
	struct virtio_net_hdr want;
	struct guest_sent *sent;

	for (;; g->rcvd_idx++, g->lost++) {
		if (g->rcvd_idx == g->sent_idx)
			FAIL("a frame of %u bytes that was not sent, or not now", len);
		sent = &g->sent[g->rcvd_idx % GUEST_SENT_MAX];
		frame_fill(bytes, sent->len, sent->seed);
		frame_swap(bytes);
		if (sent->len == len && memcmp(bytes, frame, len) == 0)
			break;
		if (!g->lossy)
			FAIL("frame %u of %u bytes came back as %u other bytes", g->rcvd_idx,
			     sent->len, len);
	}
	want = sent->hdr;
	want.num_buffers = hdr->num_buffers;
	if (memcmp(&want, hdr, g->hdr_len) != 0)
		FAIL("frame %u: header flags %#x gso %#x hdr_len %u gso_size %u csum %u+%u",
		     g->rcvd_idx, hdr->flags, hdr->gso_type, le16toh(hdr->hdr_len),
		     le16toh(hdr->gso_size), le16toh(hdr->csum_start), le16toh(hdr->csum_offset));
	g->rcvd_idx++;
}

void guest_ignore_frame(struct guest *g, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			uint32_t len)
{
}

static void take_frame(struct guest *g)
{
	struct virtio_net_hdr hdr = { 0 };

	memcpy(&hdr, g->asm_buf, g->hdr_len);
	g->bytes += g->asm_len - g->hdr_len;
	g->merged += g->asm_cnt > 1;
	if (g->on_frame != NULL)
		g->on_frame(g, &hdr, g->asm_buf + g->hdr_len, g->asm_len - g->hdr_len);
	else
		match_sent(g, &hdr, g->asm_buf + g->hdr_len, g->asm_len - g->hdr_len);
	g->asm_len = g->asm_cnt = 0;
}

/* How many buffers the frame has that begins in asm_buf. */
static unsigned buffer_cnt(const struct guest *g)
{
	struct virtio_net_hdr hdr = { 0 };
	unsigned cnt;

	if (g->hdr_len == VIRTIO_NET_HDR_LEN_LEGACY)
		return 1;
	if (g->asm_len < g->hdr_len)
		return 0; /* a buffer shorter than the header */
	memcpy(&hdr, g->asm_buf, sizeof(hdr));
	cnt = le16toh(hdr.num_buffers);
	if (cnt == 0 || cnt > g->rings[GUEST_RX].num || (!has(g, F_MRG) && cnt != 1))
		FAIL("num_buffers %u", cnt);
	return cnt;
}

/* Appends @len bytes of the buffer to the frame; behind them it must be as it was posted. */
static void take_bytes(struct guest *g, const struct guest_slot *slot, uint32_t len)
{
	uint32_t left = len;

	MUST(g->asm_len + len <= FRAME_ROOM);
	for (unsigned i = 0; i < slot->cnt; i++) {
		const uint8_t *p = guest_at(g, slot->bufs[i].addr.v);
		uint32_t size = slot->bufs[i].len, n = left < size ? left : size;
		uint32_t gap = i + 1 < slot->cnt ?
				       (uint32_t)(slot->bufs[i + 1].addr.v - slot->bufs[i].addr.v) :
				       size;

		memcpy(g->asm_buf + g->asm_len, p, n);
		g->asm_len += n;
		left -= n;
		for (uint32_t j = n; j < gap; j++) {
			if (p[j] != PREFILL)
				FAIL("a byte was written outside of what was used: piece %u byte %u",
				     i, j);
		}
	}
	EQ(left, 0);
}

static uint32_t capacity(const struct guest_slot *slot)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < slot->cnt; i++)
		sum += slot->bufs[i].len;
	return sum;
}

static void take_rx(struct guest *g, const struct guest_slot *slot, uint32_t len)
{
	if (len == 0)
		return; /* a buffer that was refused */
	take_bytes(g, slot, len);
	g->asm_cnt++;
	g->asm_left = buffer_cnt(g);
	if (g->asm_left == g->asm_cnt)
		take_frame(g);
	else if (len != capacity(slot))
		FAIL("buffer %u of %u has %u of %u bytes", g->asm_cnt, g->asm_left, len,
		     capacity(slot));
}

static unsigned reap_ring(struct guest *g, struct guest_ring *r)
{
	struct drvq_used used;
	unsigned ready;

	if (r->by_hand)
		return 0;
	/* Each passes by the checker first. */
	check_used(&r->chk);
	ready = (uint16_t)(r->chk.used_idx - r->q.used_idx);
	for (unsigned i = 0; i < ready; i++) {
		struct guest_slot *slot;

		if (drvq_get(&r->q, &used) != 1)
			FAIL("%s: the driver's side does not agree", r->chk.name);
		slot = used.token;
		give_spare(r, slot);
		if (r->idx == GUEST_RX)
			take_rx(g, slot, used.len);
		if (r->idx == GUEST_TX) {
			EQ(used.len, 0);
			g->tx_back++;
		}
	}
	return ready;
}

unsigned guest_reap(struct guest *g)
{
	unsigned rx = reap_ring(g, &g->rings[GUEST_RX]);

	if (rx > 0 && !g->cfg.no_refill)
		guest_refill(g);
	return rx + reap_ring(g, &g->rings[GUEST_TX]);
}

static void take_calls(struct guest_ring *r)
{
	eventfd_t n;

	if (eventfd_read(r->call, &n) == 0)
		r->calls += (unsigned)n;
}

bool guest_pump(struct guest *g, unsigned ms)
{
	struct guest_ring *rx = &g->rings[GUEST_RX], *tx = &g->rings[GUEST_TX];
	struct pollfd pfd[] = { { .fd = rx->call, .events = POLLIN },
				{ .fd = tx->call, .events = POLLIN } };
	bool again, woken = true;

	if (guest_reap(g) > 0)
		return true;
	again = !rx->by_hand && drvq_call_on(&rx->q);
	again |= !tx->by_hand && drvq_call_on(&tx->q);
	if (!again)
		woken = poll(pfd, 2, (int)ms) > 0;
	take_calls(rx);
	take_calls(tx);
	drvq_call_off(&rx->q);
	drvq_call_off(&tx->q);
	return guest_reap(g) > 0 || woken;
}

bool guest_tx_done(const struct guest *g)
{
	return check_out(&g->rings[GUEST_TX].chk) == 0;
}

bool guest_rx_done(const struct guest *g)
{
	return g->rcvd_idx == g->sent_idx;
}

void guest_exchange(struct guest *g, unsigned cnt, uint32_t len, unsigned window)
{
	/* A chain is no longer than the ring. */
	unsigned cuts = g->rings[GUEST_TX].num > 1, sent = 0;

	while (sent < cnt) {
		unsigned before = sent;

		while (sent < cnt && g->sent_idx - g->rcvd_idx < window &&
		       guest_send(g, len, NULL, &g->hdr_len, cuts))
			sent++;
		guest_kick(g, GUEST_TX);
		if (sent == before && !guest_pump(g, test_patience_ms()))
			FAIL("stuck: sent %u received %u of %u bytes", g->sent_idx, g->rcvd_idx,
			     len);
	}
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
}

uint8_t guest_command(struct guest *g, uint8_t class, uint8_t cmd, const void *data, uint32_t len)
{
	struct guest_ring *r = &g->rings[GUEST_CTRL];
	struct guest_slot *slot = guest_spare(r);
	const uint32_t lens[] = { 2, len, 1 };
	uint8_t bytes[4096] = { class, cmd };
	struct pollfd pfd = { .fd = r->call, .events = POLLIN };
	struct drvq_used used;
	uint8_t *answer;
	int ret;

	MUST(len < sizeof(bytes) - 3);
	if (len > 0)
		memcpy(bytes + 2, data, len);
	bytes[2 + len] = PREFILL;
	MUST(lay_chain(r, bytes, lens, 3) == slot);
	MUST(add_chain(r, slot, 2));
	guest_kick(g, GUEST_CTRL);
	while ((ret = check_used(&r->chk) > 0 ? drvq_get(&r->q, &used) : 0) == 0) {
		if (!drvq_call_on(&r->q) && poll(&pfd, 1, (int)test_patience_ms()) == 0)
			FAIL("no answer to command %u/%u", class, cmd);
		take_calls(r);
	}
	EQ(ret, 1);
	EQ(used.len, 1);
	give_spare(r, slot);
	answer = guest_at(g, slot->bufs[2].addr.v);
	MUST(*answer != PREFILL);
	return *answer;
}
