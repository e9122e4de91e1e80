/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cursor over the pieces of a buffer.
 *
 * DOC: iovec arithmetic happens here and nowhere else. A cursor is a position in an array of
 * pieces; copies move it forward and stop at the end, so a caller compares one return value and
 * never adds lengths itself.
 */
#ifndef UVHOST_BASE_IOV_H
#define UVHOST_BASE_IOV_H

#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

struct iov_cursor {
	const struct iovec *iov;
	unsigned cnt;
	size_t off; /* into iov[0] */
};

static inline struct iov_cursor iov_cursor(const struct iovec *iov, unsigned cnt)
{
	return (struct iov_cursor){ .iov = iov, .cnt = cnt, .off = 0 };
}

/* Bytes in @cnt pieces. */
size_t iov_bytes(const struct iovec *iov, unsigned cnt);

/* What the next two do where @len bytes are not in one piece. */
size_t iov_read_pieces(struct iov_cursor *c, void *dst, size_t len);
size_t iov_write_pieces(struct iov_cursor *c, const void *src, size_t len);

/* The next @len bytes, where they are in the cursor's piece, and moves past them; NULL: they are not. */
static inline void *iov_run(struct iov_cursor *c, size_t len)
{
	size_t left = c->cnt > 0 ? c->iov->iov_len - c->off : 0;
	char *p;

	if (left == 0 || left < len)
		return NULL;
	p = (char *)c->iov->iov_base + c->off;
	c->off += len;
	return p;
}

/* Copies up to @len bytes at the cursor to @dst, moves it past them; bytes copied. */
static inline size_t iov_read(struct iov_cursor *c, void *dst, size_t len)
{
	const void *p = iov_run(c, len);

	if (p == NULL)
		return iov_read_pieces(c, dst, len);
	memcpy(dst, p, len);
	return len;
}

/* Copies up to @len bytes from @src to the cursor's place, moves it past them; bytes copied. */
static inline size_t iov_write(struct iov_cursor *c, const void *src, size_t len)
{
	void *p = iov_run(c, len);

	if (p == NULL)
		return iov_write_pieces(c, src, len);
	memcpy(p, src, len);
	return len;
}

/* Moves the cursor by up to @len bytes; bytes moved. */
size_t iov_skip(struct iov_cursor *c, size_t len);

/*
 * Cuts @len bytes off the front of the array in place: returns the pieces that remain and stores
 * the first of them in *@iov. @len must not exceed what is there.
 */
unsigned iov_trim_front(struct iovec **iov, unsigned cnt, size_t len);

#endif
