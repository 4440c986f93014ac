# Guests that are one program make and judge numbered frames, by each policy; none is lost. Those of 64
# bytes go polling and sleeping.
# boot: hvm
# timeout: 180
# needs: grantway-xen
only_grantway
unikernel_vif=script=vif-grantway
# checked FIGURE: what the backend's checkers report, of all vifs.
checked() { grantway report | tr '{,' '\n\n' | awk -F: -v name="\"$1\"" '$1 == name { n += $2 } END { print n + 0 }'; }
for size in 64 1496 65535; do
    waits=sleep
    [ $size != 64 ] || waits="sleep poll"
    start_backend --port check
    for policy in copy persistent staging; do
        for wait in $waits; do
            unikernel_start u2 generate=$size count=2000 burst=8 policy=$policy wait=$wait
            await 60 2000 "frames of $size bytes that arrived, $policy, $wait" checked received
            expect "$(checked lost)$(checked corrupt)$(checked duplicated)" = 000 "frames lost, damaged or twice"
            wait_for 20 unikernel_said u2 'frames: made 2000, refused 0,'
            xl shutdown u2
            guest_gone u2
        done
    done
    kill_backend -TERM
    start_backend --port generator:size=$size,count=2000
    for policy in copy persistent staging; do
        for wait in $waits; do
            unikernel_start u2 check policy=$policy wait=$wait
            wait_for 60 unikernel_said u2 'frames: came 2000, .* received 2000, lost 0, duplicated 0, reordered 0, stale 0, corrupt 0, foreign 0'
            xl shutdown u2
            guest_gone u2
        done
    done
    kill_backend -TERM
done
say "2000 frames of each size went each way by each policy"
# From one to the other on the own bridge, where the receiver's address is known from its first frame.
start_backend --port bridge --uplink tap:gw0
unikernel_start u3 check from=00:16:3e:00:00:01 policy=staging
unikernel_start u2 generate=64 count=200 burst=1 to=00:16:3e:00:00:01 policy=staging
wait_for 60 unikernel_said u3 'received 200, lost 0, duplicated 0, reordered 0, stale 0, corrupt 0'
xl destroy u2
xl destroy u3
nothing_left
