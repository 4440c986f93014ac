# Saying what was seen, and what should have been.

# say TEXT...: one line for whoever watches.
say() { printf '%s\n' "$*"; }

# fail TEXT...: ends the scenario; for good only outside of $(...).
fail() {
    echo "FAIL: $*"
    exit 1
}

# skip TEXT...: ends it without a verdict.
skip() {
    echo "skip: $*"
    exit 77
}

# expect FOUND RELATION WANTED [WHAT]: compares numbers (-ge ...) or texts (= !=).
expect() {
    [ "$1" "$2" "$3" ] || fail "${4:-value}: found $1, expected $2 $3"
}

# refuse COMMAND...: fails if COMMAND does not.
refuse() {
    if "$@"; then fail "should have failed: $*"; fi
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds; fails after SECONDS, as an
# idle machine would count them, but not within a minute.
wait_for() {
    # In a shell of its own, where polling leaves no trace.
    (
        set +ex
        limit=$(($(now_ms) + $(patient "$1") * 1000))
        shift
        until "$@" >/dev/null; do
            [ "$(now_ms)" -lt $limit ] || exit 1
            usleep 100000
        done
    ) || fail "waited in vain: $*"
}

# await SECONDS TEXT WHAT COMMAND...: until TEXT is what COMMAND prints; fails with what it
# prints in the end.
await() {
    (
        set +ex
        limit=$(($(now_ms) + $(patient "$1") * 1000))
        wanted=$2 what=$3
        shift 3
        until found=$("$@"); [ "$found" = "$wanted" ]; do
            [ "$(now_ms)" -lt $limit ] || fail "$what: found $found, expected $wanted"
            usleep 100000
        done
    ) || exit 1
}

# now_ms: milliseconds since boot, to 10 ms.
now_ms() {
    read -r _now _ </proc/uptime
    echo "${_now%.*}${_now#*.}0"
}

# random_ms MAX: 0 to MAX-1.
random_ms() { awk -v max="$1" -v seed="$(od -An -N4 -tu4 /dev/urandom)" 'BEGIN { srand(seed); print int(rand() * max) }'; }

# sleep_ms N
sleep_ms() { usleep $(($1 * 1000)); }

# percentiles: p50 and max of the numbers on the standard input, one a line.
percentiles() {
    sort -n | awk '{ v[NR] = $1 } END { if (NR) printf "p50 %s max %s n %d\n", v[int((NR + 1) / 2)], v[NR], NR }'
}

# again LEAST MOST SECONDS: whether another round is to come, and $rounds counts it:
# there are LEAST at least, and then as many as SECONDS hold since the first, MOST at
# most, so that a slow machine does fewer. rounds=0 begins.
again() {
    [ $rounds -gt 0 ] || _rounds_from=$(now_ms)
    [ $rounds -lt "$2" ] || return 1
    [ $rounds -lt "$1" ] || [ $(($(now_ms) - _rounds_from)) -lt $(($3 * 1000)) ] || return 1
    rounds=$((rounds + 1))
}
