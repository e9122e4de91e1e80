// SPDX-License-Identifier: BSD-2-Clause
/* The memory that a driver shares with its back end. */
#include "drv/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"

#define CACHE_LINE 64
#define GPA_FIRST  (1ULL << 32)
#define GPA_STEP   (1ULL << 40) /* between regions: none adjoins another */

size_t drv_mem_round(size_t len)
{
	return (len + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static void add_region(struct drv_mem *m, const struct drv_region *r)
{
	m->regions[m->cnt] = *r;
	m->regions[m->cnt].gpa.v = GPA_FIRST + m->cnt * GPA_STEP;
	m->cnt++;
}

static int make_file(size_t *len, bool hugepages)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugepages ? MFD_HUGETLB : 0);
	int fd = memfd_create("uvhost-driver", flags), rc;
	struct statfs st;

	if (fd < 0)
		return -errno;
	if (fstatfs(fd, &st) < 0)
		goto fail;
	*len = (*len + (size_t)st.f_bsize - 1) / (size_t)st.f_bsize * (size_t)st.f_bsize;
	/* A back end that cut it off would end this process, too. */
	if (ftruncate(fd, (off_t)*len) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		goto fail;
	return fd;

fail:
	rc = -errno;
	fd_close(&fd);
	return rc;
}

static int add_own(struct drv_mem *m, size_t len, bool hugepages)
{
	struct drv_region own = { .len = len };
	int rc;

	own.fd = make_file(&own.len, hugepages);
	if (own.fd < 0)
		return own.fd;
	own.addr = mmap(NULL, own.len, PROT_READ | PROT_WRITE, MAP_SHARED, own.fd, 0);
	if (own.addr == MAP_FAILED) {
		rc = -errno;
		fd_close(&own.fd);
		return rc;
	}
	add_region(m, &own);
	return 0;
}

int drv_mem_init(struct drv_mem *m, size_t len, bool hugepages, const struct uvhost_lent *lent,
		 unsigned lent_cnt)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	*m = (struct drv_mem){ 0 };
	if (lent_cnt > UVHOST_LENT_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < lent_cnt; i++) {
		if (lent[i].len == 0 || lent[i].len % page != 0 || lent[i].offset % page != 0)
			return -EINVAL;
	}
	rc = add_own(m, len, hugepages);
	for (unsigned i = 0; rc == 0 && i < lent_cnt; i++) {
		add_region(m, &(struct drv_region){
				      .addr = lent[i].addr,
				      .len = lent[i].len,
				      .fd = lent[i].fd,
				      .offset = lent[i].offset,
			      });
	}
	return rc;
}

void drv_mem_fini(struct drv_mem *m)
{
	if (m->cnt == 0)
		return;
	munmap(m->regions[0].addr, m->regions[0].len);
	fd_close(&m->regions[0].fd);
	m->cnt = 0;
}

void *drv_mem_alloc(struct drv_mem *m, size_t len)
{
	void *at = m->regions[0].addr + m->used;

	if (drv_mem_round(len) < len || drv_mem_round(len) > m->regions[0].len - m->used)
		return NULL;
	m->used += drv_mem_round(len);
	return at;
}

bool drv_mem_gpa(const struct drv_mem *m, const void *ptr, size_t len, struct gpa *gpa)
{
	for (unsigned i = 0; i < m->cnt; i++) {
		const struct drv_region *r = &m->regions[i];
		size_t at = (uintptr_t)ptr - (uintptr_t)r->addr;

		if (at < r->len && len <= r->len - at) {
			gpa->v = r->gpa.v + at;
			return true;
		}
	}
	return false;
}
