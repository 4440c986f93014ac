//! Real output of testpmd 22.11, and the results of parsing it.

use super::*;
use std::path::Path;

const SAID: &str = "\
testpmd> show port summary 0
Number of available ports: 1
Port MAC Address       Name         Driver         Status   Link
0    26:FE:3D:08:04:F6 net_memif0   net_memif      up       100 Gbps
testpmd> start tx_first 1
io packet forwarding - ports=1 - cores=1 - streams=1 - NUMA support enabled, MP allocation mode: native
Logical Core 1 (socket 0) forwards packets on 1 streams:
  RX P=0/Q=0 (socket 0) -> TX P=0/Q=0 (socket 0) peer=02:00:00:00:00:00

testpmd> show port stats 0

  ######################## NIC statistics for port 0  ########################
  RX-packets: 0          RX-missed: 0          RX-bytes:  0
  RX-errors: 0
  RX-nombuf:  0         
  TX-packets: 1          TX-errors: 0          TX-bytes:  64

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################
testpmd> show port stats 0

  ######################## NIC statistics for port 0  ########################
  RX-packets: 2278047    RX-missed: 0          RX-bytes:  145795008
  RX-errors: 0
  RX-nombuf:  0         
  TX-packets: 2278048    TX-errors: 0          TX-bytes:  145795072

  Throughput (since last show)
  Rx-pps:      2314231          Rx-bps:   1184886312
  Tx-pps:      2314231          Tx-bps:   1184886312
  ############################################################################
testpmd> quit
Telling cores to stop...

  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 7              RX-dropped: 0             RX-total: 7
  TX-packets: 20900096       TX-dropped: 132052864     TX-total: 152952960
  ----------------------------------------------------------------------------
";

#[test]
fn statistics_are_read_block_by_block() {
    let first = Shown { packets: 0, rate: 0 };
    let second = Shown { packets: 2_278_047, rate: 2_314_231 };
    assert_eq!(Shown::all(SAID), [first, second]);
    assert_eq!(Shown::all(""), []);
}

#[test]
fn what_is_cut_off_is_waited_for_and_what_is_odd_is_left_out() {
    // An output that is cut off anywhere has no more answers than the whole ones.
    for (end, _) in SAID.char_indices() {
        let found = Shown::all(&SAID[..end]);
        assert!(found.len() <= 2 && found.iter().all(|shown| shown.rate != 2314), "{end}");
    }
    let odd = SAID.replace("RX-packets: 0 ", "RX-packets: none ");
    assert_eq!(Shown::all(&odd).len(), 1);
}

#[test]
fn a_link_is_up_once_the_last_summary_says_so() {
    assert!(is_up(SAID));
    let down = "0    8A:80:1F:68:A1:F8 net_virtio_user0 net_virtio_user down     Unknown\n";
    assert!(is_up(&down.replace("down", "up")));
    assert!(!is_up(&format!("{SAID}{down}")));
    assert!(!is_up("") && !is_up("0 x") && !is_up("Port MAC Address       Name\n"));
}

#[test]
fn the_command_line_is_one_that_repeats_it() {
    let plan = Plan {
        name: "guest",
        device: "net_memif0,role=client",
        role: Role::Send(64),
        burst: 32,
        cpu: 1,
        folder: Path::new("/nowhere"),
    };
    assert_eq!(
        plan.args().join(" "),
        "dpdk-testpmd --lcores=0@1,1@1 --file-prefix=guest --vdev=net_memif0,role=client --no-pci \
         --no-telemetry --no-huge -m 128 -- -i --total-num-mbufs=16384 --burst=32 \
         --forward-mode=txonly --txpkts=64"
    );
    let of = |role: Role| (role.options().join(" "), role.start());
    assert_eq!(of(Role::Take), ("--forward-mode=rxonly".into(), "start"));
    assert_eq!(of(Role::Echo), ("--forward-mode=io".into(), "start"));
    let bounce = ("--forward-mode=io --txpkts=256".into(), "start tx_first 1");
    assert_eq!(of(Role::Bounce(256)), bounce);
}
