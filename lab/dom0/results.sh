# How results leave dom0, by lines on descriptor 3:
#   @@ WORD...   a mark
#   | TEXT       a line of the scenario's, or of the file that was named last
# Each line is one write, so that two writers do not mix.

result() { echo "@@ $*" >&3; }

# result_lines: the standard input as text, each line at once.
result_lines() {
    while IFS= read -r line; do printf '| %s\n' "$line" >&3; done
}

# result_file NAME PATH: a whole file, for the folder of logs.
result_file() {
    [ -s "$2" ] || return 0
    result file "$1"
    # Of what is endless the beginning and the end tell most.
    if [ "$(wc -c <"$2")" -gt 400000 ]; then
        { head -c 100000 "$2"; echo; echo '[...]'; tail -c 300000 "$2"; } | awk '{ print "| " $0 }' >&3
    else
        # awk ends the last line even where the file does not.
        awk '{ print "| " $0 }' "$2" >&3
    fi
}
