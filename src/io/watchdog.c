// SPDX-License-Identifier: BSD-2-Clause
/* Gets an engine out of an operation that blocks although it must not. */
/*
 * DOC: every file that an engine knows is O_NONBLOCK, but that flag belongs to the file description,
 * and a front end that passed us the file shares it. It can clear the flag and fill the file (an
 * eventfd whose counter is at its maximum, a full pipe): the next write then sleeps until the front
 * end pleases. write() on an eventfd has no flag of its own against that; io_uring refuses to start
 * such a write, but looks at the flag once more, later, inside the write.
 *
 * So while an engine executes operations, a timer sends its thread a signal every WATCHDOG_NS. The
 * handler does nothing and is installed without SA_RESTART: a system call that sleeps returns EINTR,
 * one that does not sleep never notices. The timer is started once and left ticking, so it costs a
 * busy engine no system call a round. When the engine goes to sleep, the next tick interrupts that
 * sleep; the engine then stops the timer and sleeps on. An idle process has no ticks.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define WATCHDOG_SIGNAL SIGRTMIN

/* glibc has a name for it only since 2.37. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static void on_tick(int signal)
{
	(void)signal;
}

int watchdog_init(struct watchdog *dog)
{
	struct sigaction action = { .sa_handler = on_tick };
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = WATCHDOG_SIGNAL,
	};
	sigset_t set;

	if (sigaction(WATCHDOG_SIGNAL, &action, NULL))
		return -errno;
	sigemptyset(&set);
	sigaddset(&set, WATCHDOG_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	event.sigev_notify_thread_id = gettid();
	dog->ticking = false;
	return timer_create(CLOCK_MONOTONIC, &event, &dog->timer) ? -errno : 0;
}

void watchdog_fini(struct watchdog *dog)
{
	timer_delete(dog->timer);
}

static void set_period(struct watchdog *dog, long ns)
{
	const struct itimerspec period = { { .tv_nsec = ns }, { .tv_nsec = ns } };

	/* Fails only for a timer or a period that is none. */
	timer_settime(dog->timer, 0, &period, NULL);
	dog->ticking = ns != 0;
}

void watchdog_start(struct watchdog *dog)
{
	if (!dog->ticking)
		set_period(dog, WATCHDOG_NS);
}

void watchdog_stop(struct watchdog *dog)
{
	if (dog->ticking)
		set_period(dog, 0);
}
