/* Guest receive: frames come to a backend's port, of one slot or of two, and cross over the
 * pages that a frontend posts, to a frontend that sleeps between them. Each step names the
 * function that it stands for, and is left out or moved by one of the names of mutants.toml. */

/* Queue::post, before it connects. */
#define POSTED SLOTS
#include "ring.pml"
#ifdef EMBEDDED
#include "embedded.pml"
#else
#include "xen.pml"
#endif

#ifndef FRAMES
#define FRAMES 2
#endif
#ifndef SPINS
#define SPINS 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef STRAYS
#define STRAYS 1
#endif

/* Frames in the port's own queue, whose descriptor is readable while there are any; and the
 * pages that the frame needs which the backend took and could not place (Waiting::wanted). */
byte arrived, wanted;
/* Answers written: those beyond rsp_prod are not shown yet (Receive::has_unshown). */
byte answered;
/* The frontend: answers taken. */
byte reaped;
bool killed;

/* Every frame that comes is placed, and what is placed is taken. */
ltl served { <> [] (arrived == 0 && wanted == 0 && answered == rsp_prod && reaped == rsp_prod) }

/* crates/grantway/src/frontend/workers.rs: Worker::rounds; crates/frontend/src/queue.rs */
active proctype Frontend() {
	EVENT_LOCALS;
	byte posted = POSTED;

turn:	/* Bridge::receive */
	if
	:: d_step { rsp_prod != reaped -> reaped = rsp_prod } ->
		/* Queue::repost, once enough pages came back. */
		if
		:: posted == reaped ->
			posted = reaped + SLOTS;
			front_publish(posted);
			if
			:: d_step { asks -> asks = false } ->
#ifndef FRONT_SILENT
				signal(BACK)
#endif
			:: !asks
			fi
		:: posted != reaped
		fi;
		goto turn
	:: rsp_prod == reaped
	fi;

#ifndef FRONT_DRAINS_LATE
	take_events(FRONT);
	some = false;
#endif
	/* Queue::arm: Queue::post, Receive::arm */
#ifndef UNPOSTED
	if
	:: posted != reaped + SLOTS ->
		posted = reaped + SLOTS;
		front_publish(posted);
		if
		:: d_step { asks -> asks = false } -> signal(BACK)
		:: !asks
		fi
	:: posted == reaped + SLOTS
	fi;
#endif
	front_arm(reaped, 1);
	if
	:: d_step { there -> there = false } -> goto turn
	:: !there
	fi;
#ifdef FRONT_DRAINS_LATE
	take_events(FRONT);
	some = false;
#endif
	fall_asleep(FRONT);

	/* Worker::sleep */
end:	readable(FRONT);
	printf("frontend: wakes\n");
	take_events(FRONT);
	some = false;
	goto turn
}

/* Receive::show: all answers that are written. */
inline back_show() {
	if
	:: answered != rsp_prod ->
		back_publish(answered);
		if
		:: d_step { asks -> asks = false; printf("backend: signals\n") } ->
#ifndef BACK_SILENT
			signal(FRONT)
#endif
		:: !asks
		fi
	:: answered == rsp_prod
	fi
}

/* crates/backend/src/worker/serve.rs; turn/queue.rs, turn/receive.rs */
active proctype Backend() {
	EVENT_LOCALS;
	bool watched;
	byte spins;

start:	{
		/* Queue::connect: rings, take_up; pages that a killed process consumed and did not
		 * use come before those on the ring, so that only what was used is counted here. */
		bind();
#ifndef RESUME_SILENT
		signal(FRONT);
#endif
		/* Worker::attach */
		watched = true;

turn:		/* Receive::turn: the next frame from the port, where none waits */
		if
		:: d_step { wanted == 0 && arrived > 0 -> arrived--; wanted = 1 }
		:: d_step { wanted == 0 && arrived > 0 -> arrived--; wanted = 2 }
		:: wanted > 0 || arrived == 0
		fi;
		if
		:: d_step { wanted > 0 && req_prod - answered >= wanted ->
			/* Receive::finish */
			answered = answered + wanted;
			wanted = 0 } ->
			/* Showing::is_due: now, or after a later turn. */
			if
			:: back_show()
			:: true
			fi;
			goto turn
		:: else ->
			if
			:: spins < SPINS ->
				/* Worker::look, while it spins or other queues are busy */
				spins++;
				take_events(BACK);
				some = false;
				goto turn
			:: true
			fi
		fi;

		/* Worker::serve, Queue::arm: Queue::pause, Receive::arm; Worker::watch_port */
#ifndef UNSHOWN
		back_show();
#endif
		if
		:: wanted > 0 -> back_arm(rsp_prod, wanted)
		:: wanted == 0
		fi;
		if
		:: d_step { there -> there = false } -> goto turn
		:: !there
		fi;
#ifdef BACK_DRAINS_LATE
		take_events(BACK);
#endif
#ifdef UNWATCHED
		watched = (watched && wanted == 0);
#else
		watched = (wanted == 0);
#endif

asleep:		fall_asleep(BACK);
		/* Worker::look: the event channels, and the port. */
end:		if
		:: readable(BACK) ->
			take_events(BACK);
			if
			:: d_step { some -> some = false } -> goto turn
			:: !some -> goto asleep
			fi
		:: watched && arrived > 0 -> goto turn
		fi
	} unless {
		killed
	}
	d_step {
		printf("backend: killed\n");
		bury();
		/* Frames in its memory are lost, and so are those whose answers were not shown. */
		wanted = 0;
		answered = rsp_prod;
		spins = 0;
		killed = false
	};
	goto start
}

/* Frames come, or do not. */
active proctype Network() {
	byte frames;
	do
	:: frames < FRAMES -> frames++; if :: arrived++ :: skip fi
	:: frames == FRAMES -> break
	od
}

/* Whoever kills the backend, at any time, or does not; and who signals for nothing. */
active proctype Others() {
	EVENT_LOCALS;
	byte kills;
	do
	:: kills < KILLS -> kills++; if :: killed = true; (!killed) :: kills = KILLS fi
	:: kills == KILLS -> break
	od;
#if STRAYS
	stray(BACK);
	stray(FRONT)
#endif
}
