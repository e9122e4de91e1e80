// SPDX-License-Identifier: BSD-2-Clause
/* Transmit: from the guest's ring to the port. */
#include "net/tx.h"

#include <assert.h>
#include <errno.h>

#include "net/hdr.h"

static struct tx *tx_of(struct work_src *src)
{
	return container_of(src, struct tx, src);
}

/* One burst, between the ring and the port. */
struct burst {
	struct frame frames[TX_BURST]; /* the good ones */
	uint8_t chain_of[TX_BURST];    /* frames[i] came in chains[chain_of[i]] */
	uint8_t drops[TX_BURST];       /* enum net_drop, by chain */
	unsigned chain_cnt, frame_cnt;
	unsigned bytes;
};

/* ---- prepare ---- */

static enum net_drop decode_chain(const struct tx *tx, const struct vq_chain *c, struct frame *f)
{
	/* A transmit chain has nothing that the device may write (virtio 1.2, 5.1.6.2). */
	if (c->err != 0 || c->in_cnt > 0)
		return DROP_BAD_CHAIN;
	if (!tx->q.enabled)
		return DROP_DISABLED;
	f->iov = c->iov;
	f->iov_cnt = c->out_cnt;
	f->len = c->out_len;
	return hdr_decode(f, tx->hdr_len, tx->offloads);
}

/* Decodes chains until the round has no room for more bytes. */
static void decode_burst(struct tx *tx, struct burst *b, const struct vq_chain *chains,
			 unsigned cnt, unsigned room_bytes)
{
	b->chain_cnt = b->frame_cnt = b->bytes = 0;
	while (b->chain_cnt < cnt && b->bytes < room_bytes) {
		unsigned i = b->chain_cnt++;

		b->drops[i] = (uint8_t)decode_chain(tx, &chains[i], &b->frames[b->frame_cnt]);
		if (b->drops[i] == DROP_NONE) {
			b->bytes += b->frames[b->frame_cnt].len;
			b->chain_of[b->frame_cnt++] = (uint8_t)i;
		}
	}
}

/* Remembers the frames under cookies and gives them to the port; takes back what does not fit. */
static void send_burst(struct tx *tx, struct burst *b, const struct vq_chain *chains)
{
	unsigned sent;

	for (unsigned i = 0; i < b->frame_cnt; i++) {
		const struct vq_chain *c = &chains[b->chain_of[i]];
		uint16_t cookie = tx->cookies[--tx->cookie_cnt];

		tx->frames[cookie] = (struct tx_frame){
			.head = c->head, .seq = c->seq, .len = b->frames[i].len, .out = true
		};
		b->frames[i].cookie = cookie;
	}
	sent = tx->port->ops->prep_send(tx->port, b->frames, b->frame_cnt);
	tx->out_cnt += sent;
	for (unsigned i = b->frame_cnt; i > sent; i--) {
		uint16_t cookie = b->frames[i - 1].cookie;

		tx->frames[cookie].out = false;
		tx->cookies[tx->cookie_cnt++] = cookie;
	}
	if (sent < b->frame_cnt)
		b->chain_cnt = b->chain_of[sent];
}

static struct work_used tx_prepare(struct work_src *src, struct work_room room)
{
	struct tx *tx = tx_of(src);
	struct vq_chain *chains = tx->scratch->chains;
	struct burst b;
	unsigned max;
	int popped;

	tx->took = false;
	if (tx->stopping || !queue_usable(&tx->q))
		return (struct work_used){ 0 };
	scratch_enter(tx->scratch, worker_round(src->worker));
	vq_kick_off(&tx->q.vq);
	max = min_uint(TX_BURST, max_uint(tx->q.vq.num / 4, 1));
	max = min_uint(min_uint(max, room.frames), tx->cookie_cnt);
	popped = vq_pop(&tx->q.vq, chains, max, &tx->scratch->pieces);
	if (popped < 0) {
		queue_break(&tx->q, "the guest broke its transmit ring");
		return (struct work_used){ 0 };
	}
	decode_burst(tx, &b, chains, (unsigned)popped, room.bytes);
	if (b.frame_cnt > 0)
		send_burst(tx, &b, chains);
	vq_unpop(&tx->q.vq, (unsigned)popped - b.chain_cnt);
	for (unsigned i = 0; i < b.chain_cnt; i++) {
		if (b.drops[i] == DROP_NONE)
			continue;
		count_drop(&tx->q.cnt, b.drops[i]);
		queue_return(&tx->q, &chains[i], 0);
	}
	tx->took = popped > 0;
	return (struct work_used){ .frames = b.chain_cnt, .bytes = b.bytes, .more = tx->took };
}

/* ---- harvest ---- */

/* Takes a frame out of the books; its chain is to be pushed. */
static struct vq_done take_back(struct tx *tx, uint16_t cookie, enum net_drop drop)
{
	struct tx_frame *f = &tx->frames[cookie];

	assert(f->out);
	f->out = false;
	tx->cookies[tx->cookie_cnt++] = cookie;
	tx->out_cnt--;
	if (drop == DROP_NONE)
		count_frame(&tx->q.cnt, f->len);
	else
		count_drop(&tx->q.cnt, drop);
	return (struct vq_done){ .head = f->head, .seq = f->seq, .len = 0 };
}

static void post_finish(struct tx *tx)
{
	if (tx->finish_posted)
		return;
	tx->finish_posted = true;
	worker_post(tx->src.worker, &tx->finish);
}

static struct work_used tx_harvest(struct work_src *src)
{
	struct tx *tx = tx_of(src);
	struct port_sent sent[PORT_SENT_MAX];
	struct vq_done done[PORT_SENT_MAX];
	bool fault = false;
	unsigned n;

	if (!queue_running(&tx->q))
		return (struct work_used){ 0 };
	while ((n = tx->port->ops->done_send(tx->port, sent, PORT_SENT_MAX)) > 0) {
		for (unsigned i = 0; i < n; i++) {
			fault |= sent[i].res == -EFAULT;
			done[i] = take_back(tx, sent[i].cookie, drop_of_errno(sent[i].res));
		}
		vq_push(&tx->q.vq, done, n);
	}
	if (fault)
		queue_break(&tx->q, "the front end took guest memory away");
	queue_publish_later(&tx->q, min_uint(TX_CALL_FRAMES, max_uint(tx->q.vq.num / 4, 1)),
			    TX_CALL_NS);
	if (tx->stopping && (tx->out_cnt == 0 || !work_timer_pending(&tx->deadline)))
		post_finish(tx);
	return (struct work_used){ .more = tx->took && !tx->stopping };
}

static bool tx_peek(struct work_src *src)
{
	struct tx *tx = tx_of(src);

	return queue_running(&tx->q) && !tx->q.vq.broken && vq_peek(&tx->q.vq);
}

static bool tx_arm(struct work_src *src)
{
	struct tx *tx = tx_of(src);

	/* Without a free cookie only the port can make a difference, and it makes us ready. */
	return !tx->stopping && tx->cookie_cnt > 0 && queue_arm(&tx->q);
}

/* ---- life ---- */

static const struct work_ops tx_ops = {
	.prepare = tx_prepare,
	.harvest = tx_harvest,
	.peek = tx_peek,
	.arm = tx_arm,
};

/* Ends a stop: what the port still has is abandoned, its heads are returned all the same. */
static void finish_stop(struct tx *tx)
{
	if (tx->out_cnt > 0) {
		log_limited(&tx->q.limit, LOG_LEVEL_WARN, tx->q.name,
			    "abandoned frames that the port did not finish in time: frames=%u",
			    tx->out_cnt);
		tx->port->ops->abandon(tx->port);
	}
	for (unsigned i = 0; i < VQ_NUM_MAX && tx->out_cnt > 0; i++) {
		struct vq_done done;

		if (!tx->frames[i].out)
			continue;
		done = take_back(tx, (uint16_t)i, DROP_ABANDONED);
		vq_push(&tx->q.vq, &done, 1);
	}
	queue_stop(&tx->q);
	work_timer_stop(&tx->deadline);
	tx->stopping = tx->finish_posted = false;
}

static void finish_msg(struct work_msg *msg)
{
	struct tx *tx = container_of(msg, struct tx, finish);

	finish_stop(tx);
	tx->stopped(tx->stopped_ctx);
}

void tx_init(struct tx *tx, struct worker *w, const char *device)
{
	work_src_init(&tx->src, w, &tx_ops);
	queue_init(&tx->q, &tx->src, device, "tx");
	work_timer_init(&tx->deadline, &tx->src);
	tx->finish.fn = finish_msg;
	tx->cookie_cnt = VQ_NUM_MAX;
	for (unsigned i = 0; i < VQ_NUM_MAX; i++)
		tx->cookies[i] = (uint16_t)i;
}

int tx_start(struct tx *tx, const struct queue_cfg *cfg)
{
	tx->hdr_len = hdr_len(cfg->features);
	return queue_start(&tx->q, cfg);
}

bool tx_stop(struct tx *tx, uint64_t deadline_ns)
{
	if (!queue_running(&tx->q)) {
		queue_stop(&tx->q);
		return true;
	}
	if (tx->out_cnt == 0 || tx->q.vq.broken) {
		finish_stop(tx);
		return true;
	}
	tx->stopping = true;
	work_timer_set(&tx->deadline, deadline_ns);
	work_src_ready(&tx->src);
	return false;
}
