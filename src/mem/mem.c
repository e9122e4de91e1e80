// SPDX-License-Identifier: BSD-2-Clause
/* Guest memory: the table of regions. */
#include "mem/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "mem/guard_priv.h"

static_assert(sizeof(size_t) == sizeof(uint64_t), "a region's size is a size_t here");

struct region {
	uint64_t gpa, uva, size;
	char *base; /* where the region begins inside the mapping */
	char *map;
	size_t map_len;
	int guard;
};

/*
 * The look-up is a scan from the largest region down. Nearly all buffers lie in the largest, so it
 * mostly ends at the first comparison; a remembered last region could not do better, and would be
 * a cache line that all the queues of a device write.
 */
struct mem {
	unsigned cnt;
	atomic_bool broken;
	struct region regions[MEM_REGIONS_MAX];
};

/* Front ends cause these lines; they are written by the control thread only. */
static struct log_limit limit;

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	/* Neither wraps, so one of the two differences is a distance, the other out of range. */
	return b - a < a_size || a - b < b_size;
}

/* Empty or wrapping by itself, or overlapping one of the @before regions in front of it? */
static bool misplaced(const struct mem_region_cfg *r, const struct mem_region_cfg *before)
{
	uint64_t last = r->size - 1;

	if (r->size == 0 || last > UINT64_MAX - r->gpa.v || last > UINT64_MAX - r->uva.v ||
	    last > UINT64_MAX - r->offset)
		return true;
	for (; before < r; before++) {
		if (overlap(r->gpa.v, r->size, before->gpa.v, before->size) ||
		    overlap(r->uva.v, r->size, before->uva.v, before->size))
			return true;
	}
	return false;
}

/* Checks that the file can back the region and finds its page size. */
static int check_file(const struct mem_region_cfg *cfg, unsigned flags, size_t *page)
{
	struct statfs fs;
	struct stat st;

	/* Only files on tmpfs and hugetlbfs have seals, and asking for them asks no file system: that
	 * of a stranger (FUSE) might never answer. */
	if (!(flags & MEM_ANY_FILE) && fcntl(cfg->fd, F_GET_SEALS) < 0)
		return errno == EINVAL ? -EMEDIUMTYPE : -errno;
	if (fstatfs(cfg->fd, &fs) < 0 || fstat(cfg->fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || cfg->size > (uint64_t)st.st_size ||
	    cfg->offset > (uint64_t)st.st_size - cfg->size)
		return -ENXIO;
	*page = (size_t)(fs.f_type == HUGETLBFS_MAGIC ? fs.f_bsize : sysconf(_SC_PAGESIZE));
	return 0;
}

/*
 * Maps one region. A region may begin anywhere in its file, a mapping only at a page; hugetlbfs wants
 * the length in whole pages, too. The file's size bounds all sums here, so none can overflow.
 */
static int region_map(struct region *r, const struct mem_region_cfg *cfg, unsigned flags,
		      atomic_bool *broken)
{
	struct guard_range guard = { .broken = broken };
	uint64_t skip;
	char *map;
	int ret;

	ret = check_file(cfg, flags, &guard.page);
	if (ret < 0)
		return ret;
	skip = cfg->offset & (guard.page - 1);
	guard.len = (skip + cfg->size + guard.page - 1) & ~(guard.page - 1);
	/* Neither reserved nor populated: how much of its memory is backed is the front end's affair,
	 * and the time that a table takes must not depend on its size. */
	map = mmap(NULL, guard.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, cfg->fd,
		   (off_t)(cfg->offset - skip));
	if (map == MAP_FAILED)
		return -errno;
	/* A guest's memory is no part of our core dump; where the kernel cannot, it is. */
	(void)madvise(map, guard.len, MADV_DONTDUMP);
	guard.start = map;
	ret = guard_add(&guard);
	if (ret < 0) {
		munmap(map, guard.len);
		return ret;
	}
	*r = (struct region){
		.gpa = cfg->gpa.v,
		.uva = cfg->uva.v,
		.size = cfg->size,
		.base = map + skip,
		.map = map,
		.map_len = guard.len,
		.guard = ret,
	};
	return 0;
}

static int larger_first(const void *a, const void *b)
{
	const struct region *ra = a, *rb = b;

	return (ra->size < rb->size) - (ra->size > rb->size);
}

int mem_new(struct mem **mem, const struct mem_region_cfg *regions, unsigned cnt, unsigned flags,
	    const char *name)
{
	struct mem *m;
	int ret = 0;

	if (cnt == 0 || cnt > MEM_REGIONS_MAX)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	while (m->cnt < cnt) {
		const struct mem_region_cfg *cfg = &regions[m->cnt];

		ret = misplaced(cfg, regions) ?
			      -EINVAL :
			      region_map(&m->regions[m->cnt], cfg, flags, &m->broken);
		if (ret < 0)
			goto err_free;
		m->cnt++;
	}
	qsort(m->regions, m->cnt, sizeof(m->regions[0]), larger_first);
	*mem = m;
	return 0;

err_free:
	log_limited(&limit, LOG_LEVEL_ERROR, name,
		    "guest memory refused%s: region=%u gpa=%#llx size=%#llx offset=%#llx error=%s",
		    ret == -EMEDIUMTYPE ?
			    ": it is in a file that is no shared memory (memfd, tmpfs, "
			    "hugetlbfs); --any-memory accepts it" :
			    "",
		    m->cnt, (unsigned long long)regions[m->cnt].gpa.v,
		    (unsigned long long)regions[m->cnt].size,
		    (unsigned long long)regions[m->cnt].offset, log_errname(ret));
	mem_free(m, NULL);
	return ret;
}

void mem_free(struct mem *mem, struct later *later)
{
	if (mem == NULL)
		return;
	for (unsigned i = 0; i < mem->cnt; i++) {
		guard_del(mem->regions[i].guard);
		later_unmap(later, mem->regions[i].map, mem->regions[i].map_len);
	}
	free(mem);
}

bool mem_broken(const struct mem *mem)
{
	/* Relaxed: the thread that faulted sees what its own handler stored; another one learns of
	 * it a moment later, as it would if the file had been truncated a moment later. */
	return atomic_load_explicit(&mem->broken, memory_order_relaxed);
}

void *mem_at_uva(const struct mem *mem, struct uva addr, uint64_t len)
{
	for (unsigned i = 0; i < mem->cnt; i++) {
		const struct region *r = &mem->regions[i];
		uint64_t off = addr.v - r->uva;

		/* An address below the region wraps to an offset beyond it. */
		if (off < r->size)
			return len <= r->size - off ? r->base + off : NULL;
	}
	return NULL;
}

static const struct region *region_at(const struct mem *mem, uint64_t gpa)
{
	for (unsigned i = 0; i < mem->cnt; i++) {
		if (gpa - mem->regions[i].gpa < mem->regions[i].size)
			return &mem->regions[i];
	}
	return NULL;
}

int mem_pieces(const struct mem *mem, struct gpa addr, uint64_t len, struct iovec *iov,
	       unsigned max)
{
	uint64_t at = addr.v;
	unsigned cnt = 0;

	/* What wraps would go on at address 0, which may well be memory. */
	if (len > 0 && len - 1 > UINT64_MAX - at)
		return -EFAULT;
	while (len > 0) {
		const struct region *r = region_at(mem, at);
		uint64_t off, run;

		if (r == NULL)
			return -EFAULT;
		if (cnt == max)
			return -E2BIG;
		off = at - r->gpa;
		run = min_size(len, r->size - off);
		iov[cnt++] = (struct iovec){ .iov_base = r->base + off, .iov_len = run };
		at += run;
		len -= run;
	}
	return (int)cnt;
}
