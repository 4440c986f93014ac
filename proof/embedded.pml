/* An event channel of the embedded host: crates/embedded/src/pending.rs, domain/events.rs,
 * host/channels.rs. Each end has a set with one port. Nobody masks in it but the host, and
 * only ports that are free. */

#define BACK 0
#define FRONT 1
/* domain/events.rs: PATIENCE, shorter. */
#define PATIENCE 2

/* Which binding the backend's end has, 0 while it has none. Its set is a new one each time,
 * so that whoever still holds another binding writes to memory that nobody reads. */
byte binding, bindings;
/* Pending: the bit of the port, that of its word, and the eventfd. */
bool pending[2], selector[2];
byte bell[2];
/* EventSet: bits taken whose ring was not drained, and its two patiences. */
byte rings[2], idle_polls[2], vain_drains[2];

#define EVENT_LOCALS bool asks, there, some, taken; byte before, held, drained

#define reaches(p) (p == FRONT || held == binding)

/* EventSet::notify, Pending::signal, Pending::raise */
inline signal(p) {
	held = binding;
	if
	:: d_step { held == 0 || !reaches(p) || pending[p] -> held = 0 }
	:: d_step {
		held != 0 && reaches(p) && !pending[p] ->
#ifdef SELECTOR_FIRST
		selector[p] = true
#else
		pending[p] = true
#endif
	} ->
		d_step {
			if
			:: reaches(p) ->
#ifdef SELECTOR_FIRST
				pending[p] = true
#else
				selector[p] = true
#endif
			:: else
			fi
		};
		d_step {
			if
			:: reaches(p) -> bell[p]++
			:: else
			fi;
			held = 0
		}
	fi
}

/* A peer that rings without a bit: an empty wake-up. */
inline stray(p) {
	bell[p]++
}

#define readable(p) bell[p] > 0

inline fall_asleep(p) {
	skip
}

/* Pending::take */
inline take_bits(p) {
#ifdef SELECTOR_LAST
	d_step { taken = pending[p] && selector[p]; if :: taken -> pending[p] = false :: else fi };
	selector[p] = false;
#else
	d_step { taken = selector[p]; selector[p] = false };
	if
	:: taken -> d_step { taken = pending[p]; pending[p] = false }
	:: !taken
	fi;
#endif
	d_step {
		some = (some || taken);
		rings[p] = rings[p] + taken;
		taken = false
	}
}

/* EventSet::gather, as EventChannels::poll calls it. */
inline take_events(p) {
	some = false;
	take_bits(p);
	d_step {
		if
		:: !some && rings[p] == 0 && idle_polls[p] < PATIENCE -> idle_polls[p]++
		:: else -> idle_polls[p] = 0
		fi
	};
	if
	:: idle_polls[p] > 0 && idle_polls[p] < PATIENCE
	:: else ->
		d_step {
			idle_polls[p] = 0;
			drained = bell[p];
			bell[p] = 0;
			rings[p] = (rings[p] > drained -> rings[p] - drained : 0);
			if
			:: drained > 0 || rings[p] == 0 -> vain_drains[p] = 0
			:: else ->
				vain_drains[p]++;
				if
				:: vain_drains[p] == PATIENCE -> rings[p] = 0; vain_drains[p] = 0
				:: else
				fi
			fi;
			drained = 0
		};
#ifndef NO_SECOND_TAKE
		take_bits(p)
#endif
	fi
}

/* Channels::bind, which signals the new port; but we do not rest on it. */
inline bind() {
	d_step { bindings++; binding = bindings };
	if
	:: d_step { pending[BACK] = true; selector[BACK] = true; bell[BACK]++ }
	:: skip
	fi
}

/* The backend's process is gone: Channels::close_set. */
inline bury() {
	binding = 0;
	pending[BACK] = false; selector[BACK] = false; bell[BACK] = 0;
	rings[BACK] = 0; idle_polls[BACK] = 0; vain_drains[BACK] = 0;
#ifndef HALF_SIGNAL_LEFT
	/* Pending::complete: it may have died between the bit and the bell. */
	if
	:: pending[FRONT] -> selector[FRONT] = true; bell[FRONT]++
	:: else
	fi
#endif
}
