// SPDX-License-Identifier: BSD-2-Clause
/* The command line of uvhostd, from one table. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "dev/mac.h"
#include "port/port.h"
#include "wire/feature_names.h"

#define PROGRAM     "uvhostd"
#define LONG_OPTION 256 /* no character; each has its own number, else getopt sees no ambiguity */

/* An option of the process sets a field of struct options, one of a device a field of its dev_cfg;
 * the latter are also the keys of --device, which itself has no setter. A setter returns NULL, or what
 * it wants. */
struct option_def {
	const char *name;
	const char *arg; /* NULL: a switch */
	const char *help;
	bool commas; /* in --device, too, the value may hold some */
	char letter; /* short form */
	const char *(*set)(struct options *o, const char *value);
	const char *(*set_dev)(struct dev_cfg *d, const char *value);
};

/* ---- setters ---- */

static bool parse_uint(const char *s, unsigned long min, unsigned long max, unsigned long *v)
{
	char *end;

	errno = 0;
	*v = strtoul(s, &end, 10);
	return *s >= '0' && *s <= '9' && *end == '\0' && errno == 0 && *v >= min && *v <= max;
}

static const char *set_path(struct dev_cfg *d, const char *value)
{
	d->socket_path = value;
	return *value != '\0' ? NULL : "a path";
}

static const char *set_fd(struct dev_cfg *d, const char *value)
{
	unsigned long v;

	if (!parse_uint(value, 0, 1 << 20, &v))
		return "the number of an open descriptor";
	d->fd = (int)v;
	return NULL;
}

static const char *set_client(struct dev_cfg *d, const char *value)
{
	d->client = true;
	return NULL;
}

static const char *set_mode(struct dev_cfg *d, const char *value)
{
	char *end;
	unsigned long v = strtoul(value, &end, 8);

	if (*value < '0' || *value > '7' || *end != '\0' || v > 0777)
		return "an octal mode up to 777";
	d->socket_mode = (mode_t)v;
	return NULL;
}

static const char *set_group(struct dev_cfg *d, const char *value)
{
	d->socket_group = value;
	return NULL;
}

static const char *set_port(struct dev_cfg *d, const char *value)
{
	d->port = value;
	return NULL;
}

static const char *set_mac(struct dev_cfg *d, const char *value)
{
	d->mac_set = mac_parse(d->mac, value);
	return d->mac_set ? NULL : "a unicast address like 52:54:00:12:34:56";
}

static const char *set_mtu(struct dev_cfg *d, const char *value)
{
	unsigned long v;

	if (!parse_uint(value, VIRTIO_NET_MTU_MIN, VIRTIO_NET_MTU_MAX, &v))
		return "68 to 65535";
	d->mtu = (uint16_t)v;
	return NULL;
}

static const char *set_offload(struct dev_cfg *d, const char *value)
{
	d->offload = value;
	return NULL;
}

static const char *set_features(struct dev_cfg *d, const char *value)
{
	return feature_names_add(value, &d->leave_out) < 0 ? "-NAME,... of " FEATURE_NAMES : NULL;
}

static const char *set_name(struct dev_cfg *d, const char *value)
{
	d->name = value;
	return *value != '\0' ? NULL : "a name";
}

static const char *set_any_memory(struct dev_cfg *d, const char *value)
{
	d->any_memory = true;
	return NULL;
}

static const char *set_io(struct options *o, const char *value)
{
	static const char *const kinds[] = {
		[IO_AUTO] = "auto", [IO_URING] = "uring", [IO_PLAIN] = "plain"
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(value, kinds[i]) == 0) {
			o->io = (enum io_kind)i;
			return NULL;
		}
	}
	return "auto, uring or plain";
}

static const char *set_poll(struct options *o, const char *value)
{
	unsigned long v;

	if (!parse_uint(value, 0, 1000000, &v))
		return "microseconds, 0 to 1000000";
	o->poll_us = (unsigned)v;
	return NULL;
}

static const char *set_stats(struct options *o, const char *value)
{
	o->stats = true;
	return NULL;
}

static const char *set_verbose(struct options *o, const char *value)
{
	o->verbose = true;
	return NULL;
}

static const char *set_capabilities(struct options *o, const char *value)
{
	o->action = ACTION_CAPABILITIES;
	return NULL;
}

static const char *set_help(struct options *o, const char *value)
{
	o->action = ACTION_HELP;
	return NULL;
}

static const char *set_version(struct options *o, const char *value)
{
	o->action = ACTION_VERSION;
	return NULL;
}

static const struct option_def table[] = {
	{ "socket-path", "PATH", "listen for the front end on this socket", .set_dev = set_path },
	{ "fd", "N", "use this listening or connected socket instead", .set_dev = set_fd },
	{ "client", NULL, "connect to socket-path, for ever", .set_dev = set_client },
	{ "socket-mode", "MODE", "permissions of the socket, octal (600)", .set_dev = set_mode },
	{ "socket-group", "GROUP", "group of the socket", .set_dev = set_group },
	{ "port", "PORT", "where frames go, see below", .commas = true, .set_dev = set_port },
	{ "mac", "ADDR", "address of the guest's NIC (made from socket-path)", .set_dev = set_mac },
	{ "mtu", "N", "MTU that the guest is told (it is told none)", .set_dev = set_mtu },
	{ "offload", "[+-]NAME,...", "offloads to require or leave out, see below", .commas = true,
	  .set_dev = set_offload },
	{ "features", "-NAME,...", "virtio features to leave out, see below", .commas = true,
	  .set_dev = set_features },
	{ "name", "NAME", "name in the log and the counters (from socket-path)",
	  .set_dev = set_name },
	{ "any-memory", NULL, "accept guest memory in ordinary files", .set_dev = set_any_memory },
	{ "device", "KEY=VALUE,...", "one more device, with the keys above", .set = NULL },
	{ "io", "KIND", "auto, uring or plain system calls (auto)", .set = set_io },
	{ "poll-us", "N", "look for more work this long before sleeping (0)", .set = set_poll },
	{ "stats", NULL, "print the counters as JSON at exit; SIGUSR1 prints them at any time",
	  .set = set_stats },
	{ "verbose", NULL, "log more", .set = set_verbose },
	{ "print-capabilities", NULL, "print what this back end is as JSON",
	  .set = set_capabilities },
	{ "help", NULL, "print this", .letter = 'h', .set = set_help },
	{ "version", NULL, "print the version", .letter = 'V', .set = set_version },
};

/* ---- --device ---- */

static struct dev_cfg *add_device(struct options *o)
{
	struct dev_cfg *devs = realloc(o->devs, (o->dev_cnt + 1) * sizeof(*devs));

	if (devs == NULL) {
		fputs(PROGRAM ": out of memory\n", stderr);
		abort();
	}
	o->devs = devs;
	devs[o->dev_cnt] = (struct dev_cfg){ .fd = -1, .socket_mode = 0600 };
	return &devs[o->dev_cnt++];
}

/* The device key at the start of @s, up to '=', ',' or the end; NULL: there is none. */
static const struct option_def *key_at(const char *s)
{
	size_t len = strcspn(s, "=,");

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].set_dev != NULL && strlen(table[i].name) == len &&
		    memcmp(table[i].name, s, len) == 0)
			return (table[i].arg != NULL) == (s[len] == '=') ? &table[i] : NULL;
	}
	return NULL;
}

/* The comma that ends the value of @def; of a value that may hold commas the one before a key. */
static char *value_end(const struct option_def *def, char *s)
{
	for (s = strchr(s, ','); s != NULL; s = strchr(s + 1, ',')) {
		if (!def->commas || key_at(s + 1) != NULL)
			return s;
	}
	return NULL;
}

/* Options are said once: of two values one would be lost without a word. */
static bool first_time(uint64_t *seen, const struct option_def *def)
{
	uint64_t bit = 1ULL << (def - table);
	bool first = (*seen & bit) == 0;

	*seen |= bit;
	return first;
}

/* Cuts @value into pieces where it stands, in argv: the setters keep pointers to them. */
static const char *parse_device(struct options *o, char *value)
{
	struct dev_cfg *d = add_device(o);
	uint64_t seen = 0;
	char *next;

	for (char *s = value; *s != '\0'; s = next) {
		const struct option_def *def = key_at(s);
		const char *wants;

		if (def == NULL) {
			fprintf(stderr, PROGRAM ": --device: there is no key like '%.*s'\n",
				(int)strcspn(s, ","), s);
			return "keys and values like socket-path=/run/vm.sock,port=tap:tap0";
		}
		if (!first_time(&seen, def)) {
			fprintf(stderr, PROGRAM ": --device: %s is said twice\n", def->name);
			return "each key once";
		}
		next = value_end(def, s);
		if (next != NULL)
			*next++ = '\0';
		wants = def->set_dev(d, def->arg != NULL ? strchr(s, '=') + 1 : NULL);
		if (wants != NULL) {
			fprintf(stderr, PROGRAM ": --device: %s wants %s\n", def->name, wants);
			return "good values";
		}
		if (next == NULL)
			break;
	}
	return NULL;
}

/* ---- the whole ---- */

__attribute__((format(printf, 1, 2))) static int complain(const char *fmt, ...)
{
	va_list ap;

	fputs(PROGRAM ": ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nTry '" PROGRAM " --help'.\n", stderr);
	return -EINVAL;
}

/* What only one device can have. */
static int check_distinct(const struct dev_cfg *a, const struct dev_cfg *b)
{
	if (a->socket_path != NULL && b->socket_path != NULL &&
	    strcmp(a->socket_path, b->socket_path) == 0)
		return complain("two devices have the socket %s", a->socket_path);
	if (a->fd >= 0 && a->fd == b->fd)
		return complain("two devices have the descriptor %d", a->fd);
	if (strncmp(a->port, "tap:", 4) == 0 && strcmp(a->port, b->port) == 0)
		return complain("two devices have the port %s", a->port);
	return 0;
}

static int check_devices(const struct options *o)
{
	if (o->dev_cnt == 0)
		return complain("there is nothing to serve: say --socket-path and --port");
	for (unsigned i = 0; i < o->dev_cnt; i++) {
		const struct dev_cfg *d = &o->devs[i];

		if (d->socket_path == NULL && d->fd < 0)
			return complain("a device needs --socket-path or --fd");
		if (d->socket_path != NULL && d->fd >= 0)
			return complain("a device has --socket-path or --fd, not both");
		if (d->client && d->socket_path == NULL)
			return complain("--client needs --socket-path");
		if (d->port == NULL)
			return complain("the device at %s needs a --port",
					d->socket_path != NULL ? d->socket_path : "--fd");
		for (unsigned j = 0; j < i; j++) {
			if (check_distinct(&o->devs[j], d) < 0)
				return -EINVAL;
		}
	}
	return 0;
}

/* What was said so far outside of --device. */
struct said {
	uint64_t seen;
	int single; /* its device, -1: none */
};

static int set_option(struct options *o, const struct option_def *def, char *value,
		      struct said *said)
{
	const char *wants;

	if (def->set_dev != NULL && said->single < 0) {
		said->single = (int)o->dev_cnt;
		add_device(o);
	}
	if ((def->set_dev != NULL || def->set != NULL) && !first_time(&said->seen, def))
		return complain("--%s is said twice; more devices: --device", def->name);
	if (def->set_dev != NULL)
		wants = def->set_dev(&o->devs[said->single], value);
	else if (def->set != NULL)
		wants = def->set(o, value);
	else
		wants = parse_device(o, value);
	return wants == NULL ? 0 : complain("--%s wants %s", def->name, wants);
}

/* What getopt_long() does not take: no option, one of several, or a switch with a value. */
static int complain_of(const char *arg)
{
	size_t len = strcspn(arg, "=");

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (len > 2 && strncmp(table[i].name, arg + 2, len - 2) == 0)
			return complain(table[i].name[len - 2] == '\0' ?
						"%.*s takes no value" :
						"%.*s may be the start of more than one option",
					(int)len, arg);
	}
	return complain("'%s' is no option", arg);
}

static const struct option_def *option_of(int c)
{
	if (c >= LONG_OPTION)
		return &table[c - LONG_OPTION];
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].letter == c)
			return &table[i];
	}
	return NULL; /* getopt knows no others */
}

int options_parse(struct options *o, int argc, char **argv)
{
	struct option longs[ARRAY_SIZE(table) + 1] = { 0 };
	struct said said = { .single = -1 };
	int c;

	*o = (struct options){ .action = ACTION_SERVE };
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		longs[i] = (struct option){ .name = table[i].name,
					    .has_arg = table[i].arg != NULL ? required_argument :
									      no_argument,
					    .val = LONG_OPTION + (int)i };
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet */
	while ((c = getopt_long(argc, argv, ":hV", longs, NULL)) != -1) {
		if (c == ':')
			return complain("%s needs a value", argv[optind - 1]);
		if (c == '?')
			return complain_of(argv[optind - 1]);
		if (set_option(o, option_of(c), optarg, &said) < 0)
			return -EINVAL;
		if (o->action != ACTION_SERVE)
			return 0; /* whatever else is said does not matter then */
	}
	if (optind < argc)
		return complain("'%s' is no option", argv[optind]);
	return check_devices(o);
}

void options_print_help(void)
{
	const struct port_ops *port;

	puts("Usage: " PROGRAM " --socket-path=PATH --port=PORT [OPTION...]\n"
	     "Serve virtio-net devices of virtual machines over vhost-user.\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char left[40];

		snprintf(left, sizeof(left), "--%s%s%s", table[i].name,
			 table[i].arg != NULL ? "=" : "", table[i].arg != NULL ? table[i].arg : "");
		printf("  %-26s %s\n", left, table[i].help);
	}
	puts("\nPorts:");
	for (unsigned i = 0; (port = port_nth(i)) != NULL; i++)
		printf("  %s\n", port->syntax);
	puts("\nOffloads: host_csum host_tso4 host_tso6 host_ecn (what the guest may send), guest_csum\n"
	     "guest_tso4 guest_tso6 guest_ecn (what it may be given); csum tso4 tso6 ecn: both ways;\n"
	     "tso: all segmentation; all. Offered is what the port can do; -NAME leaves one out, +NAME\n"
	     "fails if the port cannot do it.\n\n"
	     "Features: " FEATURE_NAMES ".\n\n"
	     "  " PROGRAM " --socket-path=/run/vm1.sock --port=tap:tap0\n");
}
