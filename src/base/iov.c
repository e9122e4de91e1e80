// SPDX-License-Identifier: BSD-2-Clause
/* A cursor over the pieces of a buffer. */
#include "base/iov.h"

#include <assert.h>

#include "base/util.h"

size_t iov_bytes(const struct iovec *iov, unsigned cnt)
{
	size_t sum = 0;

	for (unsigned i = 0; i < cnt; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* The contiguous run at the cursor, at most @len bytes; moves past it. NULL at the end. */
static void *next_run(struct iov_cursor *c, size_t len, size_t *run)
{
	while (c->cnt > 0) {
		size_t left = c->iov->iov_len - c->off;

		if (left > 0) {
			char *p = (char *)c->iov->iov_base + c->off;

			*run = min_size(left, len);
			c->off += *run;
			return p;
		}
		c->iov++;
		c->cnt--;
		c->off = 0;
	}
	return NULL;
}

size_t iov_read_pieces(struct iov_cursor *c, void *dst, size_t len)
{
	size_t done = 0, run;
	void *p;

	while (done < len && (p = next_run(c, len - done, &run)) != NULL) {
		memcpy((char *)dst + done, p, run);
		done += run;
	}
	return done;
}

size_t iov_write_pieces(struct iov_cursor *c, const void *src, size_t len)
{
	size_t done = 0, run;
	void *p;

	while (done < len && (p = next_run(c, len - done, &run)) != NULL) {
		memcpy(p, (const char *)src + done, run);
		done += run;
	}
	return done;
}

size_t iov_skip(struct iov_cursor *c, size_t len)
{
	size_t done = 0, run;

	while (done < len && next_run(c, len - done, &run) != NULL)
		done += run;
	return done;
}

unsigned iov_trim_front(struct iovec **iov, unsigned cnt, size_t len)
{
	while (cnt > 0 && len >= (*iov)->iov_len) {
		len -= (*iov)->iov_len;
		(*iov)++;
		cnt--;
	}
	assert(cnt > 0 || len == 0);
	if (len > 0) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + len;
		(*iov)->iov_len -= len;
	}
	return cnt;
}
