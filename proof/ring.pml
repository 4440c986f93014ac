/* The ring as both ends use it: crates/ring/src/front.rs and back.rs. Numbers stand for
 * themselves, as so few never wrap; what wraps is loom's (crates/ring/tests/loom.rs).
 * Each statement is one access to shared memory, or none. */

#define SLOTS 2

#ifndef POSTED
#define POSTED 0
#endif

/* POSTED requests were shown before anybody looked. */
byte req_prod = POSTED, rsp_prod;
/* As Front::init leaves them. */
byte req_event = 1, rsp_event = 1;

/* Whether the peer asked to be told of one of these. */
#define asked(new, old, event) (((new - event) & 255) < ((new - old) & 255))

/* Front::publish: `asks` when the backend asked. */
inline front_publish(new) {
#ifdef FRONT_LOOKS_EARLY
	asks = asked(new, req_prod, req_event);
	d_step { printf("frontend: shows requests up to %d\n", new); req_prod = new }
#else
	d_step { printf("frontend: shows requests up to %d\n", new); before = req_prod; req_prod = new };
	d_step { asks = asked(new, before, req_event); before = 0 }
#endif
}

/* Back::publish: `asks` when the frontend asked. */
inline back_publish(new) {
#ifdef BACK_LOOKS_EARLY
	asks = asked(new, rsp_prod, rsp_event);
	d_step { printf("backend: shows answers up to %d\n", new); rsp_prod = new }
#else
	d_step { printf("backend: shows answers up to %d\n", new); before = rsp_prod; rsp_prod = new };
	d_step { asks = asked(new, before, rsp_event); before = 0 }
#endif
}

/* Front::arm_after: `there` where so many responses are there. */
inline front_arm(cons, count) {
	if
	:: d_step { rsp_prod - cons >= count -> there = true }
	:: else ->
#ifndef FRONT_UNARMED
		rsp_event = cons + count;
#endif
#ifndef FRONT_NO_RECHECK
		if
		:: d_step { rsp_prod - cons >= count -> there = true }
		:: else
		fi
#endif
	fi
}

/* Back::arm_after: `there` where so many requests are there. */
inline back_arm(cons, count) {
	if
	:: d_step { req_prod - cons >= count -> there = true }
	:: else ->
#ifndef BACK_UNARMED
		req_event = cons + count;
#endif
#ifndef BACK_NO_RECHECK
		if
		:: d_step { req_prod - cons >= count -> there = true }
		:: else
		fi
#endif
	fi
}
