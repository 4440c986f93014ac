/* An event channel of Xen behind /dev/xen/evtchn: crates/xen/src/events.rs, and of Xen and
 * Linux what those lines rest on. Each end has one port. */

#define BACK 0
#define FRONT 1

/* The backend's end is bound. */
bool bound;
/* Xen's two bits of a port, and whether it stands in the driver's buffer. */
bool pending[2], masked[2], fired[2];
/* For the edge-triggered wait only: somebody waits, and was woken. */
bool waits[2], woken[2];

/* What a process needs for these. */
#define EVENT_LOCALS bool asks, there, some; byte before

/* EventChannels::notify; a port without a peer swallows it. */
inline signal(p) {
	d_step { pending[p] = (bound || pending[p]) }
}

/* Anybody who may: an empty wake-up is legal. */
inline stray(p) {
	signal(p)
}

/* Xen's upcall, and the driver, which masks the port and puts it into its buffer. */
inline deliver(p) {
	d_step {
		pending[p] && !masked[p] ->
		pending[p] = false;
#ifdef EDGE_WAIT
		/* Seed 003: who waits now is woken, and nobody later. */
		if
		:: waits[p] -> printf("kernel: wakes who waits at port %d\n", p); waits[p] = false; woken[p] = true
		:: else -> printf("kernel: nobody waits at port %d, a signal is forgotten\n", p)
		fi
#else
		masked[p] = true;
		fired[p] = true
#endif
	}
}

active proctype Kernel() {
end:	do
	:: deliver(BACK)
	:: deliver(FRONT)
	od
}

/* The descriptor, to which poll and epoll are level-triggered. */
#ifdef EDGE_WAIT
#define readable(p) woken[p]
#else
#define readable(p) fired[p]
#endif

/* Before a sleep; the level-triggered wait has nothing to do. */
inline fall_asleep(p) {
#ifdef EDGE_WAIT
	d_step { printf("port %d: somebody waits\n", p); waits[p] = true }
#else
	skip
#endif
}

/* EventSet::take: reads the buffer, counts, unmasks. `some` when there was any. */
inline take_events(p) {
#ifdef EDGE_WAIT
	d_step { some = woken[p]; woken[p] = false }
#else
	d_step { some = fired[p]; fired[p] = false };
#ifndef NO_UNMASK
	if
	:: some -> masked[p] = false
	:: !some
	fi
#endif
#endif
}

/* EVTCHNOP_bind_interdomain: Xen makes the new port pending, but we do not rest on it. */
inline bind() {
	if
	:: d_step { bound = true; pending[BACK] = true }
	:: bound = true
	fi
}

/* The backend's process is gone, and the kernel closes its ports. */
inline bury() {
	bound = false;
	pending[BACK] = false;
	masked[BACK] = false;
	fired[BACK] = false;
	waits[BACK] = false;
	woken[BACK] = false
}
