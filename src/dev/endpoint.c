// SPDX-License-Identifier: BSD-2-Clause
/* Where a device meets its front end. */
#include "dev/endpoint.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/unix_socket.h"

#define RETRY_MIN_NS (100 * NSEC_PER_MSEC)
#define RETRY_MAX_NS (2 * NSEC_PER_SEC)
#define BACKLOG      8
#define ACCEPTS      16 /* a turn */

enum role { LISTENER, CLIENT, GIVEN };

struct endpoint {
	struct endpoint_cfg cfg;
	enum role role;
	struct sockaddr_un addr;
	bool made_socket; /* in the file system, to be removed */
	bool busy;        /* a front end is there, or none is wanted */
	bool resting;     /* none is wanted until then */
	uint64_t rest_until_ns;
	int current; /* its socket, borrowed */
	int next;    /* of one that came when that had hung up, -1: none */
	struct log_limit limit;
	int fd; /* listening, or the given one */
	struct work_src src;
	struct io_file file;
	bool watched;
	struct work_watch watch;
	struct work_timer retry;
	uint64_t retry_ns;
};

/* ---- making the socket ---- */

static int set_group(const struct endpoint *ep, const char **err)
{
	char names[4096];
	struct group gr, *found = NULL;

	if (ep->cfg.group == NULL)
		return 0;
	if (getgrnam_r(ep->cfg.group, &gr, names, sizeof(names), &found) != 0 || found == NULL) {
		*err = "there is no group of the name in --socket-group";
		return -ENOENT;
	}
	if (chown(ep->addr.sun_path, (uid_t)-1, gr.gr_gid) < 0) {
		*err = "cannot give the socket to that group; are you in it?";
		return -errno;
	}
	return 0;
}

static int open_listener(struct endpoint *ep, const char **err)
{
	int rc;

	ep->fd = unix_bind(&ep->addr, ep->cfg.mode, err);
	if (ep->fd < 0)
		return ep->fd;
	ep->made_socket = true;
	rc = set_group(ep, err);
	if (rc == 0 && listen(ep->fd, BACKLOG) < 0) {
		*err = "cannot listen on the socket";
		rc = -errno;
	}
	return rc;
}

static int adopt_fd(struct endpoint *ep, const char **err)
{
	int listening = 0, domain = 0, type = 0;
	socklen_t len = sizeof(int);

	ep->fd = ep->cfg.fd;
	if (getsockopt(ep->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
	    getsockopt(ep->fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || domain != AF_UNIX ||
	    type != SOCK_STREAM) {
		*err = "the descriptor is no UNIX stream socket";
		return -ENOTSOCK;
	}
	if (getsockopt(ep->fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0)
		return -errno;
	ep->role = listening ? LISTENER : GIVEN;
	return fd_set_nonblock(ep->fd);
}

/* ---- meeting front ends ---- */

static void hand_over(struct endpoint *ep, int fd)
{
	ep->busy = true;
	ep->current = fd;
	ep->retry_ns = RETRY_MIN_NS;
	ep->cfg.connected(ep->cfg.ctx, fd);
}

static void retry_later(struct endpoint *ep)
{
	work_timer_set(&ep->retry, worker_now(ep->cfg.control) + ep->retry_ns);
	ep->retry_ns = ep->retry_ns * 2 < RETRY_MAX_NS ? ep->retry_ns * 2 : RETRY_MAX_NS;
}

/* Has the front end that is still being served closed its end? */
static bool has_left(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLRDHUP };

	return poll(&pfd, 1, 0) == 1;
}

/* One at a time; but who comes after the other has hung up only has to wait. */
static void take_in(struct endpoint *ep, int fd)
{
	if (!ep->busy) {
		hand_over(ep, fd);
	} else if (has_left(ep->current)) {
		later_close(ep->cfg.later, &ep->next); /* the latest one counts */
		ep->next = fd;
	} else {
		log_limited(&ep->limit, LOG_LEVEL_WARN, ep->cfg.name,
			    "turned a second front end away");
		later_close(ep->cfg.later, &fd);
	}
}

/* True: there may be more. */
static bool accept_some(struct endpoint *ep)
{
	for (unsigned i = 0; i < ACCEPTS; i++) {
		/* cppcheck-suppress nullPointer; nobody wants the peer's address */
		int fd = accept4(ep->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take_in(ep, fd);
		} else if (errno == EAGAIN) {
			return false;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			/* Out of descriptors or memory: the connection waits, and so do we. */
			log_limited(&ep->limit, LOG_LEVEL_WARN, ep->cfg.name,
				    "cannot accept a front end: error=%s", log_errname(-errno));
			retry_later(ep);
			return false;
		}
	}
	return true;
}

static void try_connect(struct endpoint *ep)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&ep->addr, sizeof(ep->addr)) == 0) {
		hand_over(ep, fd);
		return;
	}
	log_debug(ep->cfg.name, "no front end at %s yet: error=%s", ep->addr.sun_path,
		  log_errname(-errno));
	fd_close(&fd);
	retry_later(ep);
}

static struct work_used endpoint_prepare(struct work_src *src, struct work_room room)
{
	struct endpoint *ep = container_of(src, struct endpoint, src);
	bool more = false;

	(void)room;
	if (ep->resting && worker_now(ep->cfg.control) >= ep->rest_until_ns)
		ep->resting = ep->busy = false;
	switch (ep->role) {
	case LISTENER:
		if (ep->next >= 0 && !ep->busy) {
			int fd = ep->next;

			ep->next = -1;
			hand_over(ep, fd);
		}
		more = accept_some(ep);
		break;
	case CLIENT:
		if (!ep->busy)
			try_connect(ep);
		break;
	case GIVEN:
		if (!ep->busy)
			hand_over(ep, ep->fd);
		ep->fd = -1;
		break;
	}
	return (struct work_used){ .more = more };
}

static const struct work_ops endpoint_ops = { .prepare = endpoint_prepare };

/* ---- life ---- */

static int open_role(struct endpoint *ep, const char **err)
{
	int rc;

	if (ep->cfg.path == NULL)
		return adopt_fd(ep, err);
	rc = unix_address(&ep->addr, ep->cfg.path, err);
	if (rc < 0 || ep->cfg.client) {
		ep->role = CLIENT;
		return rc;
	}
	ep->role = LISTENER;
	return open_listener(ep, err);
}

static int watch_listener(struct endpoint *ep, const char **err)
{
	int rc;

	if (ep->role != LISTENER)
		return 0;
	rc = io_file_add(worker_io(ep->cfg.control), &ep->file, ep->fd);
	if (rc < 0) {
		*err = "cannot watch the socket";
		return rc;
	}
	ep->watched = true;
	work_watch_init(&ep->watch, &ep->src, &ep->file, POLLIN, true);
	return io_watch_arm(worker_io(ep->cfg.control), &ep->watch.io);
}

int endpoint_new(struct endpoint **out, const struct endpoint_cfg *cfg, const char **err)
{
	struct endpoint *ep = calloc(1, sizeof(*ep));
	int rc;

	*err = "out of memory";
	if (ep == NULL)
		return -ENOMEM;
	ep->cfg = *cfg;
	ep->fd = ep->next = -1;
	ep->retry_ns = RETRY_MIN_NS;
	work_src_init(&ep->src, cfg->control, &endpoint_ops);
	work_timer_init(&ep->retry, &ep->src);
	rc = open_role(ep, err);
	if (rc == 0)
		rc = watch_listener(ep, err);
	if (rc < 0)
		endpoint_free(ep);
	else
		*out = ep;
	return rc;
}

void endpoint_free(struct endpoint *ep)
{
	if (ep->watched) {
		io_watch_cancel(worker_io(ep->cfg.control), &ep->watch.io);
		io_file_del(worker_io(ep->cfg.control), &ep->file);
	}
	work_timer_stop(&ep->retry);
	work_src_remove(&ep->src);
	if (ep->made_socket)
		unlink(ep->addr.sun_path);
	fd_close(&ep->next);
	fd_close(&ep->fd);
	free(ep);
}

void endpoint_start(struct endpoint *ep)
{
	if (ep->role != GIVEN)
		log_info(ep->cfg.name, "%s %s",
			 ep->role == CLIENT ? "looking for a front end at" : "listening on",
			 ep->cfg.path != NULL ? ep->cfg.path : "the given socket");
	work_src_ready(&ep->src);
}

bool endpoint_next(struct endpoint *ep, uint64_t rest_ns)
{
	ep->busy = rest_ns > 0;
	ep->current = -1;
	if (ep->role == GIVEN)
		return false;
	if (rest_ns > 0) {
		ep->resting = true;
		ep->rest_until_ns = worker_now(ep->cfg.control) + rest_ns;
		later_close(ep->cfg.later, &ep->next);
		work_timer_set(&ep->retry, ep->rest_until_ns);
	} else if (ep->role == CLIENT) {
		retry_later(ep);
	} else if (ep->next >= 0) {
		work_src_ready(&ep->src);
	}
	return true;
}
