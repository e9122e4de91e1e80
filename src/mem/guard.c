// SPDX-License-Identifier: BSD-2-Clause
/*
 * The SIGBUS handler.
 *
 * DOC: the handler runs in whichever thread touched memory that is gone, while the control thread
 * may be adding and removing ranges of other tables. So the registry is an array of slots that the
 * handler reads as under a seqlock: it takes the sequence, the fields, and the sequence again, and
 * passes over a slot that changed meanwhile. It may pass over such a slot because the one that it
 * looks for holds still: a range is added before its first use and removed after its last. The
 * fields are stored with release and loaded with acquire, which orders them between the two looks
 * at the sequence without a fence: whoever sees a new field also sees that the sequence moved on.
 *
 * Several threads may fault in one range at once; each then maps the zero pages anew, and what the
 * others wrote in between is lost like everything else there.
 */
#include "mem/guard_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "mem/mem.h"

/* Two tables, the old and the new, of 512 devices. Untouched slots cost no memory. */
#define SLOTS (2 * 512 * MEM_REGIONS_MAX)

struct slot {
	atomic_uint seq; /* odd: in use */
	char *_Atomic start;
	_Atomic size_t len, page;
	atomic_bool *_Atomic broken;
};

static struct slot slots[SLOTS];
/* Slots from here on were never used. */
static atomic_int slots_end;

int guard_add(const struct guard_range *range)
{
	for (int i = 0; i < SLOTS; i++) {
		struct slot *s = &slots[i];
		unsigned seq = atomic_load_explicit(&s->seq, memory_order_relaxed);

		if (seq % 2 != 0)
			continue;
		atomic_store_explicit(&s->start, range->start, memory_order_release);
		atomic_store_explicit(&s->len, range->len, memory_order_release);
		atomic_store_explicit(&s->page, range->page, memory_order_release);
		atomic_store_explicit(&s->broken, range->broken, memory_order_release);
		atomic_store_explicit(&s->seq, seq + 1, memory_order_release);
		if (i >= atomic_load_explicit(&slots_end, memory_order_relaxed))
			atomic_store_explicit(&slots_end, i + 1, memory_order_release);
		return i;
	}
	return -ENOSPC;
}

void guard_del(int slot)
{
	struct slot *s = &slots[slot];
	unsigned seq = atomic_load_explicit(&s->seq, memory_order_relaxed);

	/* Ordered before the next guard_add()'s fields by their release. */
	atomic_store_explicit(&s->seq, seq + 1, memory_order_relaxed);
}

/* A consistent copy of a slot in use, or false. */
static bool slot_read(const struct slot *s, struct guard_range *range)
{
	unsigned seq = atomic_load_explicit(&s->seq, memory_order_acquire);

	if (seq % 2 == 0)
		return false;
	range->start = atomic_load_explicit(&s->start, memory_order_acquire);
	range->len = atomic_load_explicit(&s->len, memory_order_acquire);
	range->page = atomic_load_explicit(&s->page, memory_order_acquire);
	range->broken = atomic_load_explicit(&s->broken, memory_order_acquire);
	return atomic_load_explicit(&s->seq, memory_order_relaxed) == seq;
}

/*
 * mmap() is not on POSIX's list of what a handler may call. The bare system call is safe there, and a
 * sanitizer's wrapper, which takes locks and sees a race with the other threads, is left out.
 */
static bool map_zeros(char *start, size_t len)
{
	return syscall(SYS_mmap, start, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != -1;
}

/* Puts zero pages where @addr is, if that is guest memory. */
static bool cover(char *addr)
{
	int end = atomic_load_explicit(&slots_end, memory_order_acquire);
	struct guard_range r;

	for (int i = 0; i < end; i++) {
		size_t off;

		if (!slot_read(&slots[i], &r))
			continue;
		off = (uintptr_t)addr - (uintptr_t)r.start;
		if (off >= r.len)
			continue;
		atomic_store_explicit(r.broken, true, memory_order_relaxed);
		/* Strict overcommit accounting refuses a whole guest's size: page by page then. */
		return map_zeros(r.start, r.len) || map_zeros(addr - off % r.page, r.page);
	}
	return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	/* Not one that somebody sent; memory that failed in hardware is as gone as truncated one. */
	bool gone = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;
	int saved = errno;

	if (!gone || !cover(info->si_addr)) {
		struct sigaction dfl = { .sa_handler = SIG_DFL };

		/* Blocked in its handler, the signal comes again, for the last time, on return. */
		sigaction(sig, &dfl, NULL);
		raise(sig);
	}
	errno = saved;
}

int mem_guard_install(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}
