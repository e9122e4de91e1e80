// SPDX-License-Identifier: BSD-2-Clause
/* Memory that the queues of one worker share within a round. */
#include "net/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int scratch_new(struct scratch **out)
{
	struct scratch *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->memory = mmap(NULL, (size_t)SCRATCH_SLOTS * SCRATCH_SLOT_LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->memory == MAP_FAILED) {
		free(s);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < SCRATCH_SLOTS; i++)
		s->slots[i].iov.iov_base = s->memory + (size_t)i * SCRATCH_SLOT_LEN;
	*out = s;
	return 0;
}

void scratch_free(struct scratch *s)
{
	munmap(s->memory, (size_t)SCRATCH_SLOTS * SCRATCH_SLOT_LEN);
	free(s);
}
