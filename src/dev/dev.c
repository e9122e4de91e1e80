// SPDX-License-Identifier: BSD-2-Clause
/* A device's life: where the protocol and the NIC meet. */
#include "dev/dev.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/later.h"
#include "base/log.h"
#include "dev/endpoint.h"
#include "dev/features.h"
#include "dev/mac.h"
#include "net/nic.h"
#include "vu/backend.h"

#define ALL_RINGS ((1U << NIC_RINGS) - 1)
#define BUSY_NS   (5 * NSEC_PER_MSEC)

struct dev {
	struct dev_cfg cfg;
	struct dev_env env;
	char name[40];
	uint8_t mac[VIRTIO_NET_MAC_LEN];
	unsigned offloads; /* that may be offered */
	struct port *port;
	struct nic *nic;
	struct endpoint *endpoint;
	struct later *later; /* closes what front ends leave */
	bool link_up;
	bool ended;             /* no more front ends */
	struct log_limit limit; /* of what front ends cause by coming and going */
	struct log_limit link_limit;

	/* While a front end is connected. */
	bool connected, disconnecting;
	bool greeted; /* it has spoken, and the log says that it is there */
	bool banned;  /* the next one has to wait */
	int fd;
	struct vu_backend vu;
	struct work_src src; /* the connection */
	struct io_file file;
	struct work_watch watch; /* one-shot: for reading or for writing, as the protocol wants */
	struct work_timer busy;  /* until the next look at @later */
};

/* ---- what the protocol asks for ---- */

static int op_quiesce(void *ctx, unsigned rings)
{
	return nic_quiesce(((struct dev *)ctx)->nic, rings);
}

static void op_resume(void *ctx)
{
	struct dev *dev = ctx;

	for (unsigned r = 0; r < NIC_RINGS; r++) {
		const struct vu_ring *ring = &dev->vu.rings[r];
		struct queue_cfg cfg = {
			.mem = dev->vu.mem,
			.addr = ring->addr,
			.num = ring->num,
			.base = ring->base,
			.features = dev->vu.features,
			.enabled = ring->enabled,
			.kick_fd = ring->kick_fd,
			.call_fd = ring->call_fd,
			.err_fd = ring->err_fd,
		};
		int rc;

		if (!vu_ring_runnable(&dev->vu, r) || nic_running(dev->nic, r))
			continue;
		rc = nic_start(dev->nic, r, &cfg);
		if (rc < 0)
			log_limited(&dev->limit, LOG_LEVEL_WARN, dev->name,
				    "cannot start a ring: index=%u error=%s", r, log_errname(rc));
	}
}

static uint32_t op_position(void *ctx, unsigned ring)
{
	return nic_position(((struct dev *)ctx)->nic, ring);
}

static int op_features(void *ctx, uint64_t acked)
{
	return nic_set_offload(((struct dev *)ctx)->nic, features_offloads(acked));
}

static void op_config(void *ctx, void *buf, unsigned len)
{
	const struct dev *dev = ctx;
	struct virtio_net_config config = {
		.status = htole16(dev->link_up ? VIRTIO_NET_S_LINK_UP : 0),
		.max_virtqueue_pairs = htole16(1),
		.mtu = htole16(dev->cfg.mtu),
	};

	memcpy(config.mac, dev->mac, sizeof(config.mac));
	memset(buf, 0, len);
	memcpy(buf, &config, min_size(len, sizeof(config)));
}

static void op_reset(void *ctx)
{
	struct dev *dev = ctx;

	nic_guest_goes(dev->nic);
	nic_set_offload(dev->nic, 0);
}

static const struct vu_backend_ops backend_ops = {
	.quiesce = op_quiesce,
	.resume = op_resume,
	.position = op_position,
	.features = op_features,
	.config = op_config,
	.reset = op_reset,
};

/* ---- the connection ---- */

/* Nobody is connected: the next one may come, or the device's life is over. */
static void await_front_end(struct dev *dev)
{
	if (!dev->ended)
		dev->ended = !endpoint_next(dev->endpoint, dev->banned ? DEV_BAN_NS : 0);
	dev->banned = false;
	if (dev->ended)
		dev->env.closed(dev->env.ctx);
}

static void connection_gone(struct dev *dev)
{
	struct io *io = worker_io(dev->env.control);

	nic_guest_goes(dev->nic);
	nic_set_offload(dev->nic, 0);
	vu_backend_fini(&dev->vu);
	io_watch_cancel(io, &dev->watch.io);
	io_file_del(io, &dev->file);
	work_src_remove(&dev->src);
	work_timer_stop(&dev->busy);
	later_close(dev->later, &dev->fd);
	dev->connected = dev->disconnecting = false;
	await_front_end(dev);
}

/* Stops all rings, then frees what belongs to the connection. */
static void disconnect(struct dev *dev)
{
	dev->disconnecting = true;
	if (nic_quiesce(dev->nic, ALL_RINGS) == 0)
		connection_gone(dev);
}

static void watch_for(struct dev *dev, uint32_t events)
{
	struct io *io = worker_io(dev->env.control);

	work_watch_init(&dev->watch, &dev->src, &dev->file, events, false);
	if (io_watch_arm(io, &dev->watch.io) < 0)
		disconnect(dev);
}

/* What a step of the protocol came to; true: step again. */
static bool after_step(struct dev *dev, int step)
{
	switch (step) {
	case VU_INPUT:
		watch_for(dev, POLLIN);
		return false;
	case VU_OUTPUT:
		watch_for(dev, POLLOUT);
		return false;
	case VU_PENDING:
		return false;
	case VU_MORE:
		return true;
	case VU_BUSY:
		work_timer_set(&dev->busy, worker_now(dev->env.control) + BUSY_NS);
		return false;
	default:
		if (step == -ECONNRESET)
			log_limited(&dev->limit, dev->greeted ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
				    dev->name, "the front end has left");
		else
			log_limited(&dev->limit, LOG_LEVEL_WARN, dev->name,
				    "disconnected the front end: error=%s", log_errname(step));
		disconnect(dev);
		return false;
	}
}

/* Who connects and says nothing only looks whether the socket is alive. */
static void greet(struct dev *dev)
{
	if (dev->greeted || !dev->vu.spoken)
		return;
	dev->greeted = true;
	log_limited(&dev->limit, LOG_LEVEL_INFO, dev->name, "a front end has connected");
}

static struct work_used connection_prepare(struct work_src *src, struct work_room room)
{
	struct dev *dev = container_of(src, struct dev, src);
	bool more = false;

	(void)room;
	if (!dev->disconnecting && !dev->vu.pending) {
		int step = vu_backend_step(&dev->vu);

		greet(dev);
		more = after_step(dev, step);
	}
	return (struct work_used){ .more = more };
}

static const struct work_ops connection_ops = { .prepare = connection_prepare };

/* A stop that had to wait is over. */
static void quiesced(void *ctx)
{
	struct dev *dev = ctx;

	if (dev->disconnecting)
		disconnect(dev);
	else if (after_step(dev, vu_backend_quiesced(&dev->vu)))
		work_src_ready(&dev->src);
}

/*
 * The front end had cleared O_NONBLOCK of a descriptor that was full, and the worker waited in it until
 * the watchdog came. Each time costs all devices that wait, so it must not happen often.
 */
static void front_end_stuck(void *ctx)
{
	struct dev *dev = ctx;

	if (dev->ended)
		return;
	log_limited(&dev->limit, LOG_LEVEL_WARN, dev->name,
		    "the front end made us wait in a call; disconnected, and not wanted for %u s",
		    (unsigned)(DEV_BAN_NS / NSEC_PER_SEC));
	if (!dev->connected) {
		endpoint_next(dev->endpoint, DEV_BAN_NS);
		return;
	}
	dev->banned = true;
	if (!dev->disconnecting && !dev->vu.pending)
		disconnect(dev);
	else
		dev->disconnecting = true; /* quiesced() goes on from there */
}

static void front_end_came(void *ctx, int fd)
{
	struct dev *dev = ctx;
	/* These count for the device, whoever is connected: else who reconnects floods the log. */
	struct log_limit limit = dev->vu.limit;
	uint64_t bad_messages = dev->vu.bad_messages;
	struct vu_backend_cfg cfg = {
		.name = dev->name,
		.rings = NIC_RINGS,
		.features = features_offered(dev->offloads, dev->cfg.mtu != 0) &
			    ~dev->cfg.leave_out,
		.mem_flags = dev->cfg.any_memory ? MEM_ANY_FILE : 0,
		.later = dev->later,
		.ops = &backend_ops,
		.ctx = dev,
	};

	if (io_file_add(worker_io(dev->env.control), &dev->file, fd) < 0) {
		log_warn(dev->name, "cannot watch the front end's socket");
		fd_close(&fd);
		await_front_end(dev);
		return;
	}
	dev->fd = fd;
	dev->connected = true;
	dev->greeted = false;
	work_src_init(&dev->src, dev->env.control, &connection_ops);
	work_timer_init(&dev->busy, &dev->src);
	vu_backend_init(&dev->vu, &cfg, fd);
	dev->vu.limit = limit;
	dev->vu.bad_messages = bad_messages;
	nic_guest_comes(dev->nic);
	watch_for(dev, POLLIN);
}

static void link_changed(void *ctx, bool up)
{
	struct dev *dev = ctx;

	if (dev->link_up == up)
		return;
	dev->link_up = up;
	log_limited(&dev->link_limit, LOG_LEVEL_INFO, dev->name, "the port's link is %s",
		    up ? "up" : "down");
	if (dev->connected && !dev->disconnecting && vu_backend_config_changed(&dev->vu) < 0)
		log_limited(&dev->link_limit, LOG_LEVEL_WARN, dev->name,
			    "could not tell the front end of it");
}

/* ---- life ---- */

static void choose_name(struct dev *dev)
{
	const char *base = dev->cfg.socket_path;

	if (dev->cfg.name != NULL)
		snprintf(dev->name, sizeof(dev->name), "%s", dev->cfg.name);
	else if (base == NULL)
		snprintf(dev->name, sizeof(dev->name), "fd%d", dev->cfg.fd);
	else
		snprintf(dev->name, sizeof(dev->name), "%s",
			 strrchr(base, '/') != NULL ? strrchr(base, '/') + 1 : base);
}

/* What the port can do, less and more what the options say. */
static int choose_offloads(struct dev *dev)
{
	unsigned caps = dev->port->ops->caps(dev->port), required = 0;
	const char *bad;
	int bad_len;

	dev->offloads = caps;
	if (dev->cfg.offload == NULL)
		return 0;
	if (features_edit_offloads(dev->cfg.offload, &dev->offloads, &required, &bad, &bad_len) <
	    0) {
		log_error(dev->name,
			  "there is no offload '%.*s' (nor such a key); --help lists them", bad_len,
			  bad);
		return -EINVAL;
	}
	if ((required & ~caps) != 0) {
		log_error(dev->name, "the port %s cannot do the offload %s", dev->cfg.port,
			  features_offload_name(required & ~caps));
		return -EOPNOTSUPP;
	}
	dev->offloads &= caps;
	return 0;
}

static int open_port(struct dev *dev)
{
	const char *err = NULL;
	int rc = port_open(&dev->port, dev->cfg.port, dev->name, dev->env.control, &err);

	if (rc < 0)
		log_error(dev->name, "port %s: %s: error=%s", dev->cfg.port, err, log_errname(rc));
	return rc;
}

static int open_nic(struct dev *dev)
{
	struct nic_cfg cfg = {
		.name = dev->name,
		.port = dev->port,
		.worker = dev->env.worker,
		.control = dev->env.control,
		.scratch = dev->env.scratch,
		.pieces = dev->env.pieces,
		.drain_ns = DEV_DRAIN_NS,
		.quiesced = quiesced,
		.stuck = front_end_stuck,
		.ctx = dev,
	};
	int rc = nic_new(&dev->nic, &cfg);

	if (rc < 0)
		log_error(dev->name, "cannot set up the queues: error=%s", log_errname(rc));
	return rc;
}

static int open_endpoint(struct dev *dev)
{
	struct endpoint_cfg cfg = {
		.name = dev->name,
		.path = dev->cfg.socket_path,
		.fd = dev->cfg.fd,
		.client = dev->cfg.client,
		.mode = dev->cfg.socket_mode,
		.group = dev->cfg.socket_group,
		.control = dev->env.control,
		.later = dev->later,
		.connected = front_end_came,
		.ctx = dev,
	};
	const char *err = NULL;
	int rc = endpoint_new(&dev->endpoint, &cfg, &err);

	if (rc < 0)
		log_error(dev->name, "socket %s: %s: error=%s",
			  cfg.path != NULL ? cfg.path : "of --fd", err, log_errname(rc));
	return rc;
}

int dev_new(struct dev **out, const struct dev_cfg *cfg, const struct dev_env *env)
{
	struct dev *dev = calloc(1, sizeof(*dev));
	struct port_events events = { .link = link_changed, .ctx = dev };
	int rc;

	if (dev == NULL)
		return -ENOMEM;
	dev->cfg = *cfg;
	dev->env = *env;
	dev->fd = -1;
	dev->later = later_new();
	if (dev->later == NULL) {
		rc = -ENOMEM;
		goto err_free;
	}
	choose_name(dev);
	if (cfg->mac_set)
		memcpy(dev->mac, cfg->mac, sizeof(dev->mac));
	else
		mac_for_name(dev->mac, cfg->socket_path != NULL ? cfg->socket_path : dev->name);
	rc = open_port(dev);
	if (rc < 0)
		goto err_later;
	rc = choose_offloads(dev);
	if (rc < 0)
		goto err_port;
	rc = open_nic(dev);
	if (rc < 0)
		goto err_port;
	dev->link_up = dev->port->ops->link(dev->port, &events);
	rc = open_endpoint(dev);
	if (rc < 0)
		goto err_nic;
	endpoint_start(dev->endpoint);
	*out = dev;
	return 0;

err_nic:
	nic_free(dev->nic);
err_port:
	dev->port->ops->close(dev->port);
err_later:
	later_free(dev->later);
err_free:
	free(dev);
	return rc;
}

void dev_close(struct dev *dev)
{
	if (dev->ended)
		return;
	dev->ended = true;
	if (!dev->connected)
		dev->env.closed(dev->env.ctx);
	else if (!dev->disconnecting && !dev->vu.pending)
		disconnect(dev);
	else
		dev->disconnecting = true; /* quiesced() goes on from there */
}

void dev_free(struct dev *dev)
{
	endpoint_free(dev->endpoint);
	nic_free(dev->nic);
	dev->port->ops->close(dev->port);
	later_free(dev->later);
	free(dev);
}

json_t *dev_stats(const struct dev *dev)
{
	json_t *stats = json_pack("{s:s, s:s, s:b, s:b, s:I}", "name", dev->name, "port",
				  dev->cfg.port, "connected", dev->connected, "link", dev->link_up,
				  "bad_messages", (json_int_t)dev->vu.bad_messages);
	json_t *nic = nic_stats(dev->nic);

	json_object_update(stats, nic);
	json_decref(nic);
	return stats;
}
