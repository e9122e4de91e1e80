// SPDX-License-Identifier: BSD-2-Clause
/* uvhost bench: options and report. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"
#include "tap/tap_if.h"
#include "wire/feature_names.h"

#define PROGRAM "uvhost bench"

static const char *const modes[] = {
	[BENCH_TX] = "tx", [BENCH_RX] = "rx", [BENCH_LOOP] = "loop", [BENCH_RR] = "rr"
};

struct bench_options {
	struct bench_cfg cfg;
	bool json, help;
};

/* ---- options ---- */

/* A setter returns NULL, or what it wants. */
struct bench_option {
	const char *name;
	const char *arg; /* NULL: a switch */
	const char *help;
	const char *(*set)(struct bench_options *o, const char *value);
};

static bool parse_num(const char *s, double min, double max, double *v)
{
	char *end;

	*v = strtod(s, &end);
	/* Millions and thousands of frames are easier to read so. */
	if (*end == 'k' || *end == 'M' || *end == 'G') {
		*v *= *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : 1e9;
		end++;
	}
	return end != s && *end == '\0' && *v >= min && *v <= max;
}

static const char *parse_uint(const char *s, unsigned min, unsigned max, unsigned *out,
			      const char *wants)
{
	double v;

	if (!parse_num(s, min, max, &v) || v != (double)(unsigned)v)
		return wants;
	*out = (unsigned)v;
	return NULL;
}

static const char *set_path(struct bench_options *o, const char *value)
{
	o->cfg.socket_path = value;
	return NULL;
}

static const char *set_vhost_net(struct bench_options *o, const char *value)
{
	o->cfg.kernel_tap = value;
	return tap_if_name_ok(value) ? NULL : "the name of an interface";
}

static const char *set_listen(struct bench_options *o, const char *value)
{
	o->cfg.listen = true;
	return NULL;
}

static const char *set_size(struct bench_options *o, const char *value)
{
	return parse_uint(value, 60, 65535 + 14, &o->cfg.size, "60 to 65549 bytes");
}

static const char *set_time(struct bench_options *o, const char *value)
{
	return parse_num(value, 0.01, 1e6, &o->cfg.seconds) ? NULL : "seconds";
}

static const char *set_warmup(struct bench_options *o, const char *value)
{
	return parse_num(value, 0, 1e6, &o->cfg.warmup) ? NULL : "seconds";
}

static const char *set_rate(struct bench_options *o, const char *value)
{
	double v;

	if (!parse_num(value, 1, 1e12, &v))
		return "frames a second, like 20k";
	o->cfg.rate = (uint64_t)v;
	return NULL;
}

static const char *set_count(struct bench_options *o, const char *value)
{
	double v;

	if (!parse_num(value, 1, 1e15, &v))
		return "a number of frames, like 1M";
	o->cfg.count = (uint64_t)v;
	return NULL;
}

static const char *set_burst(struct bench_options *o, const char *value)
{
	return parse_uint(value, 1, 64, &o->cfg.burst, "1 to 64 frames");
}

static const char *set_window(struct bench_options *o, const char *value)
{
	return parse_uint(value, 1, 1U << 20, &o->cfg.window, "1 to 1048576 frames");
}

static const char *set_jitter(struct bench_options *o, const char *value)
{
	return parse_uint(value, 0, 1000000, &o->cfg.jitter_us, "0 to 1000000 microseconds");
}

static const char *set_flows(struct bench_options *o, const char *value)
{
	return parse_uint(value, 1, BENCH_FLOWS_MAX, &o->cfg.flows, "1 to 256");
}

static const char *set_queues(struct bench_options *o, const char *value)
{
	return parse_uint(value, 1, 128, &o->cfg.queues, "1 to 128 queue pairs");
}

static const char *set_ring(struct bench_options *o, const char *value)
{
	static const char wants[] = "a power of two, 4 to 32768";
	const char *err = parse_uint(value, 4, 32768, &o->cfg.ring, wants);

	return err == NULL && (o->cfg.ring & (o->cfg.ring - 1)) != 0 ? wants : err;
}

static const char *set_memory(struct bench_options *o, const char *value)
{
	double v;

	if (!parse_num(value, 0, 1e15, &v))
		return "bytes, like 64G";
	o->cfg.memory = (size_t)v;
	return NULL;
}

static const char *set_hugepages(struct bench_options *o, const char *value)
{
	o->cfg.hugepages = true;
	return NULL;
}

static const char *set_wait(struct bench_options *o, const char *value)
{
	o->cfg.sleep = strcmp(value, "sleep") == 0;
	return o->cfg.sleep || strcmp(value, "poll") == 0 ? NULL : "poll or sleep";
}

static const char *set_features(struct bench_options *o, const char *value)
{
	return feature_names_add(value, &o->cfg.leave_out) < 0 ? "-NAME,... of " FEATURE_NAMES :
								 NULL;
}

static const char *set_json(struct bench_options *o, const char *value)
{
	o->json = true;
	return NULL;
}

static const char *set_help(struct bench_options *o, const char *value)
{
	o->help = true;
	return NULL;
}

static const struct bench_option table[] = {
	{ "socket-path", "PATH", "socket of the back end", set_path },
	{ "vhost-net", "TAP", "the kernel's vhost-net with this tap instead", set_vhost_net },
	{ "listen", NULL, "make that socket and wait for the back end there", set_listen },
	{ "size", "BYTES", "of a frame, without FCS (60)", set_size },
	{ "time", "S", "seconds to measure (3)", set_time },
	{ "warmup", "S", "seconds before that (0.3; with a count 0)", set_warmup },
	{ "count", "N", "end after so many frames", set_count },
	{ "rate", "N", "frames a second, like 20k (as many as go)", set_rate },
	{ "burst", "N", "frames of a sending (32; rr: 1)", set_burst },
	{ "window", "N", "frames on their way at most (tx: the ring; loop: 128; rr: 1)",
	  set_window },
	{ "jitter-us", "N", "pause before each sending, at random up to this (0)", set_jitter },
	{ "flows", "N", "different pairs of addresses (1)", set_flows },
	{ "queues", "N", "queue pairs (1)", set_queues },
	{ "ring", "N", "entries of each ring (256)", set_ring },
	{ "features", "-NAME,...", "features to do without, see below", set_features },
	{ "memory", "BYTES", "share so much more, as a large guest does (0)", set_memory },
	{ "hugepages", NULL, "take all memory from hugepages", set_hugepages },
	{ "wait", "HOW", "poll: look all the time; sleep: until an interrupt (poll)", set_wait },
	{ "json", NULL, "report as JSON", set_json },
	{ "help", NULL, "print this", set_help },
};

static void print_help(void)
{
	puts("Usage: " PROGRAM " MODE --socket-path=PATH [OPTION...]\n"
	     "Load a vhost-user network back end with checked frames, and measure.\n\n"
	     "  tx    send; counted is what the back end has returned\n"
	     "  rx    receive what another bench sends into the back end's network\n"
	     "  loop  send, and receive it all again\n"
	     "  rr    one frame there and back at a time: latency\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char left[40];

		snprintf(left, sizeof(left), "--%s%s%s", table[i].name,
			 table[i].arg != NULL ? "=" : "", table[i].arg != NULL ? table[i].arg : "");
		printf("  %-22s %s\n", left, table[i].help);
	}
	puts("\nFeatures: " FEATURE_NAMES ".\n"
	     "Used are those that the back end offers.\n\n"
	     "The exit status is 0 if frames passed and none was lost, doubled or damaged; 1 if not, or\n"
	     "if the bench could not run; 2 for a wrong command line.");
}

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

static int take_mode(struct bench_options *o, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(name, modes[i]) == 0) {
			o->cfg.mode = (enum bench_mode)i;
			return 0;
		}
	}
	return complain("there is no mode '%s': it is tx, rx, loop or rr", name);
}

/* What depends on the mode. */
static void fill_in(struct bench_cfg *c)
{
	if (c->warmup < 0)
		c->warmup = c->count != 0 ? 0 : 0.3;
	if (c->burst == 0)
		c->burst = c->mode == BENCH_RR ? 1 : 32;
	if (c->mode == BENCH_RR)
		c->window = c->burst = 1;
	else if (c->mode == BENCH_LOOP && c->window == 0)
		c->window = 128;
}

static int parse(struct bench_options *o, int argc, char **argv)
{
	struct option longs[ARRAY_SIZE(table) + 1] = { 0 };
	int c;

	o->cfg = (struct bench_cfg){
		.size = 60, .flows = 1, .queues = 1, .ring = 256, .seconds = 3, .warmup = -1
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		longs[i] = (struct option){ .name = table[i].name,
					    .has_arg = table[i].arg != NULL ? required_argument :
									      no_argument,
					    .val = 256 + (int)i };
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		const char *wants;

		if (c == ':' || c == '?')
			return complain(c == ':' ? "%s needs a value" : "'%s' is no option",
					argv[optind - 1]);
		wants = table[c - 256].set(o, optarg);
		if (wants != NULL)
			return complain("--%s wants %s", table[c - 256].name, wants);
		if (o->help)
			return 0;
	}
	if (optind + 1 != argc)
		return complain("say one mode: tx, rx, loop or rr");
	if (take_mode(o, argv[optind]) < 0)
		return -EINVAL;
	if ((o->cfg.socket_path == NULL) == (o->cfg.kernel_tap == NULL))
		return complain("say where the back end is: --socket-path, or --vhost-net");
	fill_in(&o->cfg);
	return 0;
}

/* ---- report ---- */

static uint64_t measured(const struct bench_cfg *c, const struct bench_result *r)
{
	return c->mode == BENCH_TX ? r->tx_frames : r->rx_frames;
}

static json_t *latency(const struct histogram *h)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "count", (json_int_t)h->cnt, "min",
			 (json_int_t)h->min, "p50", (json_int_t)histogram_at(h, 500), "p90",
			 (json_int_t)histogram_at(h, 900), "p99", (json_int_t)histogram_at(h, 990),
			 "p999", (json_int_t)histogram_at(h, 999), "max", (json_int_t)h->max);
}

static void print_json(const struct bench_cfg *c, const struct bench_result *r)
{
	double frames = (double)measured(c, r);
	json_t *all = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:I, s:I, s:i, s:I}", "mode",
				modes[c->mode], "size", (int)c->size, "seconds", r->seconds,
				"frames_per_second", frames / r->seconds, "gbit_per_second",
				frames * c->size * 8 / r->seconds * 1e-9, "backlog", r->backlog,
				"kicks", (json_int_t)r->kicks, "interrupts",
				(json_int_t)r->interrupts, "queues", (int)r->info.queue_pairs,
				"features", (json_int_t)r->info.features);

	json_object_set_new(all, "sent", json_integer((json_int_t)r->sent));
	json_object_set_new(all, "setup_ns", json_integer((json_int_t)r->setup_ns));
	json_object_set_new(all, "connections", json_integer((json_int_t)r->info.connections));
	if (c->mode != BENCH_TX)
		json_object_update_new(
			all,
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "good", (json_int_t)r->good,
				  "missing", (json_int_t)r->missing, "late", (json_int_t)r->late,
				  "doubled", (json_int_t)r->doubled, "damaged",
				  (json_int_t)r->damaged, "other", (json_int_t)r->other));
	if (c->mode == BENCH_RR)
		json_object_set_new(all, "latency_ns", latency(&r->rtt));
	json_dumpf(all, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(all);
}

static void print_table(const struct bench_cfg *c, const struct bench_result *r)
{
	double frames = (double)measured(c, r), per_second = frames / r->seconds;
	const struct histogram *h = &r->rtt;

	printf("%s, %u bytes: %.0f frames/s, %.3f Gbit/s in %.2f s\n", modes[c->mode], c->size,
	       per_second, per_second * c->size * 8 * 1e-9, r->seconds);
	if (c->mode != BENCH_RX)
		printf("  ring in use %.0f %%, kicks %" PRIu64 ", interrupts %" PRIu64 "\n",
		       r->backlog * 100, r->kicks, r->interrupts);
	if (c->mode != BENCH_TX)
		printf("  good %" PRIu64 ", missing %" PRIu64 ", late %" PRIu64 ", doubled %" PRIu64
		       ", damaged %" PRIu64 ", other %" PRIu64 "\n",
		       r->good, r->missing, r->late, r->doubled, r->damaged, r->other);
	if (c->mode == BENCH_RR)
		printf("  us there and back: min %.1f, half %.1f, 90 %% %.1f, 99 %% %.1f, "
		       "99.9 %% %.1f, max %.1f\n",
		       (double)h->min * 1e-3, (double)histogram_at(h, 500) * 1e-3,
		       (double)histogram_at(h, 900) * 1e-3, (double)histogram_at(h, 990) * 1e-3,
		       (double)histogram_at(h, 999) * 1e-3, (double)h->max * 1e-3);
}

int bench_main(int argc, char **argv)
{
	static struct bench_options o;
	static struct bench_result r;
	const char *what;
	int rc;

	if (parse(&o, argc, argv) < 0)
		return 2;
	if (o.help) {
		print_help();
		return 0;
	}
	rc = bench_run(&o.cfg, &r, &what);
	if (rc < 0) {
		fprintf(stderr, PROGRAM ": %s: %s: %s\n",
			o.cfg.socket_path != NULL ? o.cfg.socket_path : o.cfg.kernel_tap, what,
			strerrordesc_np(-rc));
		return 1;
	}
	if (o.json)
		print_json(&o.cfg, &r);
	else
		print_table(&o.cfg, &r);
	return measured(&o.cfg, &r) > 0 && r.missing + r.doubled + r.damaged == 0 ? 0 : 1;
}
