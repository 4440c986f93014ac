# What the backend cannot do, it says in one line, and ends.
# order: 1
# boot: pv
# timeout: 180
# needs: grantway-xen
# last: yes
only_grantway
without_netback

# refuses WHAT COMMAND...: it fails by itself, with one line.
refuses() {
    what=$1
    shift
    status=0
    timeout $(patient 15) "$@" >$LAB/logs/refusal 2>&1 || status=$?
    expect $status -ne 0 "status $what"
    expect $status -ne 143 "status $what (it had to be stopped)"
    expect "$(wc -l <$LAB/logs/refusal)" = 1 "lines $what"
    say "$what: $(cat $LAB/logs/refusal)"
}

refuses "without privileges" su nobody -c 'grantway backend'
mv /dev/xen /dev/xen.away
refuses "without /dev/xen" grantway backend
mv /dev/xen.away /dev/xen
# xenstored holds the module.
mv /dev/xen/gntdev /dev/xen/gntdev.away
refuses "without gntdev" grantway backend
mv /dev/xen/gntdev.away /dev/xen/gntdev

bridge_up
start_backend
guest_start g1 vif=bridge=xenbr0
pings dom0 g1
before=$(wc -l <$LAB/logs/backend)
kill -9 "$(cat /run/xenstored/xenstored.pid)"
backend_ended() { ! backend_alive; }
wait_for 15 backend_ended
after=$(($(wc -l <$LAB/logs/backend) - before))
expect $after = 1 "lines when xenstored died"
say "without xenstored: $(tail -n 1 $LAB/logs/backend)"
