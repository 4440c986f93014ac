# The platform's own tests (crates/xen/tests/on_xen): grants, copies, event channels and the store as /dev/xen has
# them, in dom0, in a guest, and between both, each end being once the one that grants.
# order: 1
# boot: pv
# timeout: 240
# needs: grantway-xen
only_grantway
modprobe -a xen-gntalloc xen-gntdev xen-evtchn
limit=$(cat /sys/module/xen_gntalloc/parameters/limit)
echo 4096 >/sys/module/xen_gntalloc/parameters/limit
on_xen | tee $LAB/logs/on-xen-dom0 | grep -v '^ok' || true
# Events past the 128 ports of one poll, and past the 1,024 of a page of two levels.
grep '^ok.*ports' $LAB/logs/on-xen-dom0
expect "$(sed -n 's/.* passed, \([0-9]*\) failed$/\1/p' $LAB/logs/on-xen-dom0)" = 0 "checks that failed in dom0"
guest_start g1
guest_run g1 'modprobe -a xen-gntalloc xen-gntdev xen-evtchn; echo 4096 >/sys/module/xen_gntalloc/parameters/limit'
guest_run g1 'on_xen' | grep -v '^ok'
id=$(domid g1)
on_xen serve "$id" >$LAB/logs/on-xen-serve &
serve=$!
guest_run g1 'on_xen peer 0' | grep -v '^ok'
wait $serve || fail "dom0's end: $(cat $LAB/logs/on-xen-serve)"
guest_run g1 'on_xen serve 0 >/run/lab/serve 2>&1 & echo $! >/run/lab/serve.pid'
on_xen peer "$id"
served() { guest_run g1 '[ ! -e /proc/$(cat /run/lab/serve.pid)/exe ] && grep -q ", 0 failed" /run/lab/serve'; }
wait_for 30 served
echo "$limit" >/sys/module/xen_gntalloc/parameters/limit
xl destroy g1
nothing_left
