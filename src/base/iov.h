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

/* Copies up to @len bytes at the cursor to @dst, moves it past them; bytes copied. */
size_t iov_read(struct iov_cursor *c, void *dst, size_t len);

/* Copies up to @len bytes from @src to the cursor's place, moves it past them; bytes copied. */
size_t iov_write(struct iov_cursor *c, const void *src, size_t len);

/* Moves the cursor by up to @len bytes; bytes moved. */
size_t iov_skip(struct iov_cursor *c, size_t len);

/*
 * Cuts @len bytes off the front of the array in place: returns the pieces that remain and stores
 * the first of them in *@iov. @len must not exceed what is there.
 */
unsigned iov_trim_front(struct iovec **iov, unsigned cnt, size_t len);

#endif
