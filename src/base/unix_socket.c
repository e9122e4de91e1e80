// SPDX-License-Identifier: BSD-2-Clause
/* Listening UNIX sockets with a name. */
#include "base/unix_socket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int unix_address(struct sockaddr_un *addr, const char *path, const char **err)
{
	size_t len = strlen(path);

	if (len >= sizeof(addr->sun_path)) {
		*err = "a socket path can have 107 bytes at most";
		return -ENAMETOOLONG;
	}
	*addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(addr->sun_path, path, len + 1);
	return 0;
}

/* What stands in the way at @addr? NULL: a socket that a dead process left. */
static const char *obstacle(const struct sockaddr_un *addr)
{
	struct stat st;
	int fd, rc;

	/* A file refuses connections, too; it is not ours to remove. */
	if (lstat(addr->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return "something that is no socket has that path";
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return "cannot find out whether the socket is in use";
	rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ? -errno : 0;
	fd_close(&fd);
	return rc == -ECONNREFUSED ? NULL : "in use: somebody listens on that socket already";
}

static int bind_addr(int fd, const struct sockaddr_un *addr)
{
	return bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ? -errno : 0;
}

/* Binds, past what a dead process left. */
static int claim(int fd, const struct sockaddr_un *addr, const char **err)
{
	int rc = bind_addr(fd, addr);

	*err = rc == -ENOENT ? "its directory does not exist" :
	       rc == -EACCES ? "this user may not write to its directory" :
			       "cannot make the socket there";
	if (rc != -EADDRINUSE)
		return rc;
	*err = obstacle(addr);
	if (*err != NULL)
		return rc;
	unlink(addr->sun_path);
	*err = "in use: somebody else has just made a socket there";
	return bind_addr(fd, addr);
}

int unix_bind(const struct sockaddr_un *addr, mode_t mode, const char **err)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;
	mode_t mask;

	if (fd < 0) {
		*err = "cannot make a socket";
		return -errno;
	}
	mask = umask(0777 & ~mode);
	rc = claim(fd, addr, err);
	umask(mask);
	if (rc == 0)
		return fd;
	fd_close(&fd);
	return rc;
}
