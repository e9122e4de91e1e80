/* SPDX-License-Identifier: BSD-2-Clause */
/* The ranges in which a SIGBUS breaks a memory table instead of the process. */
#ifndef UVHOST_MEM_GUARD_PRIV_H
#define UVHOST_MEM_GUARD_PRIV_H

#include <stdatomic.h>
#include <stddef.h>

/* One mapping: whole pages of @page bytes. */
struct guard_range {
	char *start;
	size_t len;
	size_t page;
	atomic_bool *broken; /* set before the mapping is replaced; lives as long as the range */
};

/* From here on a fault in @range is survived. A slot for guard_del(), or -ENOSPC. Control thread. */
int guard_add(const struct guard_range *range);
/* Before the mapping goes away, when no thread uses it any more. Control thread. */
void guard_del(int slot);

#endif
