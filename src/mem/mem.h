/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guest memory: the table of regions and the only code that turns a guest's address into a pointer.
 *
 * DOC: a table is immutable once made; a new one replaces it while no queue runs. Each region is a
 * mapping of a file that the front end sent. The front end can truncate that file afterwards; an
 * access then raises SIGBUS here. The handler maps zero pages over the region, marks the table
 * broken, and the access goes on: what it reads or writes no longer matters, because whoever uses
 * the table looks at mem_broken() before it believes anything that came out of it.
 */
#ifndef UVHOST_MEM_MEM_H
#define UVHOST_MEM_MEM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/later.h"

/* A guest-physical address, as descriptors hold it; an address in the front end's process, as
 * SET_VRING_ADDR holds it. Different types, so that mixing them does not compile. */
struct gpa {
	uint64_t v;
};

struct uva {
	uint64_t v;
};

struct mem_region_cfg {
	struct gpa gpa;
	struct uva uva;
	uint64_t size;
	uint64_t offset; /* of the region in the file */
	int fd;          /* borrowed for the call */
};

#define MEM_REGIONS_MAX 8

struct mem;

enum mem_flags {
	MEM_ANY_FILE = 1, /* also files that are not memfd, tmpfs or hugetlbfs */
};

/*
 * Maps all regions or none. -EINVAL: empty, overlapping or wrapping regions; -ENXIO: a file is
 * shorter than its region claims; -EMEDIUMTYPE: not shared memory (and not MEM_ANY_FILE); -errno of
 * mmap() and fstat(), -ENOMEM, -ENOSPC. @name is the device, for the log line that says which region
 * is at fault. Control thread, as is mem_free().
 */
int mem_new(struct mem **mem, const struct mem_region_cfg *regions, unsigned cnt, unsigned flags,
	    const char *name);
/* No thread uses the table any more. It is unmapped by @later, or at once if that is NULL. */
void mem_free(struct mem *mem, struct later *later);

/* Has the front end taken memory away from under us? Then nothing of the table can be trusted. Any
 * thread. */
bool mem_broken(const struct mem *mem);

/* The @len bytes at @addr, contiguous and inside one region; NULL when they are not. */
void *mem_at_uva(const struct mem *mem, struct uva addr, uint64_t len);

/*
 * The @len bytes at @addr as at most @max pieces, in order: a buffer may cross into adjoining
 * regions. Returns their number; -EFAULT when any byte is outside memory, -E2BIG when @max is too
 * small. @len 0 is no piece, wherever it points.
 */
int mem_pieces(const struct mem *mem, struct gpa addr, uint64_t len, struct iovec *iov,
	       unsigned max);

/* Installs the process's SIGBUS handler; once, at start. A thread that blocks SIGBUS would die of a
 * fault all the same: none may. */
int mem_guard_install(void);

#endif
