/* Guest transmit: a frontend sends frames for as long as it likes, over a ring that is
 * shorter, to a backend that may be killed and started anew. Each step names the function
 * that it stands for, and is left out or moved by one of the names of mutants.toml. */

#include "ring.pml"
#ifdef EMBEDDED
#include "embedded.pml"
#else
#include "xen.pml"
#endif

#ifndef REQUESTS
#define REQUESTS 3
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

/* The frontend: a frame found no room (Queue::wants_room); its application has stopped. */
bool wants_room, stopped;
/* The backend: requests consumed, as its journal has them (Journal::tx_consumed). */
byte consumed;
bool killed;
#ifdef OWED_FORGOTTEN
byte forgotten;
#else
#define forgotten 0
#endif
#define answerable (consumed - forgotten)

/* Every request that was shown is answered, and a frame that waits for room gets it. */
ltl served { <> [] (rsp_prod == req_prod && !wants_room) }

/* crates/grantway/src/frontend/workers.rs: Worker::rounds; crates/frontend/src/queue.rs */
active proctype Frontend() {
	EVENT_LOCALS;
	byte sent, reaped;

turn:	/* Bridge::transmit */
	if
	:: !stopped && sent < REQUESTS && sent - reaped < SLOTS ->
frame:		/* Queue::send, once or twice, and Queue::flush */
		sent++;
		if
		:: sent < REQUESTS && sent - reaped < SLOTS -> sent++
		:: skip
		fi;
		front_publish(sent);
		if
		:: d_step { asks -> asks = false; printf("frontend: signals\n") } ->
#ifndef FRONT_SILENT
			signal(BACK)
#endif
		:: !asks
		fi;
		goto turn
	:: !stopped && sent < REQUESTS && sent - reaped == SLOTS ->
		/* SendError::Full, Queue::reap */
		d_step { wants_room = (rsp_prod == reaped); reaped = rsp_prod };
		if
		:: !wants_room -> goto turn
		:: wants_room
		fi
	:: !stopped && sent < REQUESTS && sent - reaped < SLOTS	/* no frame now */
	:: !wants_room -> stopped = true	/* nor ever */
	fi;

	/* Worker::rounds takes what was signalled, and only then looks a last time. */
#ifndef FRONT_DRAINS_LATE
	take_events(FRONT);
	some = false;
#endif
	/* Queue::arm */
#ifndef ROOM_UNARMED
	if
	:: wants_room ->
		/* Queue::reap */
		d_step { wants_room = (rsp_prod == reaped); reaped = rsp_prod };
		if
		:: !wants_room -> goto turn
		:: wants_room && sent == reaped -> wants_room = false; goto turn
		:: wants_room && sent != reaped ->
			/* Transmit::arm */
			front_arm(reaped, (sent - reaped + 3) / 4);
			if
			:: d_step { there -> there = false; wants_room = false } -> goto turn
			:: !there
			fi
		fi
	:: !wants_room
	fi;
#endif
#ifdef FRONT_DRAINS_LATE
	take_events(FRONT);
	some = false;
#endif
	fall_asleep(FRONT);

	/* Worker::sleep: the event channels, and the application where no frame waits. */
	if
	:: wants_room ->
		printf("frontend: sleeps until there is room\n");
		readable(FRONT);
		printf("frontend: wakes\n")
	:: !wants_room ->
end:		if
		:: readable(FRONT)
		:: !stopped -> goto frame
		fi
	fi;
	take_events(FRONT);
	some = false;
	goto turn
}

/* crates/backend/src/worker/serve.rs; turn/queue.rs, turn/transmit.rs */
active proctype Backend() {
	EVENT_LOCALS;
	byte spins;

start:	{
		/* Queue::connect: rings */
#ifndef BIND_LATE
		bind();
#endif
#ifdef OWED_FORGOTTEN
		forgotten = consumed - rsp_prod;
#endif
		/* Transmit::answer_owed: what a killed process had consumed. */
		if
		:: answerable != rsp_prod -> back_publish(answerable); asks = false
		:: else
		fi;
#ifndef RESUME_SILENT
		/* A killed process may have shown answers and not signalled. */
		signal(FRONT);
#endif
#ifdef ATTACH_IDLE
		goto asleep;
#endif

turn:		/* Worker::attach activates it. Transmit::turn */
		if
		:: d_step { req_prod != consumed -> consumed = req_prod } ->
			/* Transmit::publish */
			back_publish(answerable);
			goto tell
		:: d_step { req_prod != consumed -> consumed = req_prod } ->
			goto turn	/* answers wait for pages to be unmapped */
#ifndef UNSETTLED
		:: req_prod == consumed && answerable != rsp_prod ->
			/* Transmit::settle */
			back_publish(answerable);
tell:			if
			:: d_step { asks -> asks = false; printf("backend: signals\n") } ->
#ifndef BACK_SILENT
				signal(FRONT)
#endif
			:: !asks
			fi;
			goto turn
		:: req_prod == consumed && answerable == rsp_prod && spins < SPINS ->
			/* Worker::look, while it spins or other queues are busy */
			spins++;
			take_events(BACK);
			some = false;
			goto turn
		:: req_prod == consumed && answerable == rsp_prod
#else
		:: req_prod == consumed
		:: false ->
tell:			if
			:: asks -> asks = false; signal(FRONT)
			:: !asks
			fi;
			goto turn
#endif
		fi;

		/* Worker::serve, Queue::arm */
		back_arm(consumed, 1);
		if
		:: d_step { there -> there = false } -> goto turn
		:: !there
		fi;
#ifdef BACK_DRAINS_LATE
		take_events(BACK);
#endif
#ifdef BIND_LATE
		bind();
#endif

asleep:		fall_asleep(BACK);
		/* Worker::look */
end:		d_step { readable(BACK) -> printf("backend: wakes\n") };
		/* Worker::take_events, Worker::activate */
		take_events(BACK);
		if
		:: d_step { some -> some = false } -> goto turn
		:: !some -> goto asleep
		fi
	} unless {
		killed
	}
	d_step {
		printf("backend: killed\n");
		bury();
		spins = 0;
		killed = false
	};
	goto start
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

/* For the search of the shortest stall, which looks for a process that cannot go on. */
#ifdef WITNESS
active proctype Witness() {
	stopped;
	rsp_prod == req_prod
}
#endif
