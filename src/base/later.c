// SPDX-License-Identifier: BSD-2-Clause
/* What may take long to end, ended in a thread of its own. */
#include "base/later.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/fd.h"

#define ROOM        1024 /* a connection may take in some hundred more after it is busy */
#define BUSY        64
#define STACK_BYTES (64U << 10)

/* A mapping, or with addr NULL a descriptor. */
struct thing {
	void *addr;
	size_t len;
	int fd;
};

struct later {
	pthread_mutex_t lock;
	struct thing things[ROOM]; /* a ring */
	unsigned first, cnt;
	bool running; /* the thread */
	bool owned;   /* later_free() was not called yet */
};

struct later *later_new(void)
{
	struct later *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	l->owned = true;
	return l;
}

/* With the lock, which is gone then: frees what nobody has any more. */
static void unlock(struct later *l)
{
	bool gone = !l->owned && !l->running;

	pthread_mutex_unlock(&l->lock);
	if (!gone)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

void later_free(struct later *l)
{
	pthread_mutex_lock(&l->lock);
	l->owned = false;
	unlock(l);
}

static void end_thing(struct thing *t)
{
	if (t->addr != NULL)
		munmap(t->addr, t->len);
	else
		fd_close(&t->fd);
}

static void *later_thread(void *arg)
{
	struct later *l = arg;

	pthread_mutex_lock(&l->lock);
	while (l->cnt > 0) {
		struct thing t = l->things[l->first];

		pthread_mutex_unlock(&l->lock);
		end_thing(&t);
		pthread_mutex_lock(&l->lock);
		/* It counts until it has ended. */
		l->first = (l->first + 1) % ROOM;
		l->cnt--;
	}
	l->running = false;
	unlock(l);
	return NULL;
}

/* A detached thread that no signal reaches. */
static bool spawn(struct later *l)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	bool ok;

	sigfillset(&all);
	if (pthread_attr_init(&attr) != 0)
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	ok = pthread_attr_setsigmask_np(&attr, &all) == 0 &&
	     pthread_create(&thread, &attr, later_thread, l) == 0;
	pthread_attr_destroy(&attr);
	return ok;
}

static void hand_over(struct later *l, struct thing t)
{
	bool taken = false;

	if (l != NULL) {
		pthread_mutex_lock(&l->lock);
		if (l->cnt < ROOM) {
			l->things[(l->first + l->cnt++) % ROOM] = t;
			if (!l->running)
				l->running = spawn(l);
			taken = l->running;
			l->cnt -= !taken;
		}
		unlock(l);
	}
	if (!taken)
		end_thing(&t);
}

void later_close(struct later *l, int *fd)
{
	if (*fd >= 0)
		hand_over(l, (struct thing){ .fd = *fd });
	*fd = -1;
}

void later_unmap(struct later *l, void *addr, size_t len)
{
	hand_over(l, (struct thing){ .addr = addr, .len = len, .fd = -1 });
}

bool later_busy(struct later *l)
{
	bool busy;

	if (l == NULL)
		return false;
	pthread_mutex_lock(&l->lock);
	busy = l->cnt >= BUSY;
	pthread_mutex_unlock(&l->lock);
	return busy;
}
