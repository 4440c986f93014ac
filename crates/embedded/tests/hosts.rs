//! The host itself: its folder, its end, and its input.

mod support;

use grantway_embedded::{ConnectError, Domain, Host, HostConfig, HostError, Role};
use grantway_hypervisor::{Access, BackendPlatform, Error, FrontendPlatform, Mapper, Platform};
use grantway_needs::{Need, met};
use grantway_testkit::Numbers;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;
use support::{BACK, FRONT, Fixture, GUARD, Process};

/// Runs the parts of started processes; does nothing in the test run itself.
#[test]
fn part() {
    let Some((part, dir, _)) = support::part() else {
        return;
    };
    match part.as_str() {
        "host" => {
            let _host = Host::spawn(&dir).unwrap();
            support::ready("");
            support::until_killed();
        }
        "cycle" => {
            let fixture = Fixture::new();
            cycle(&fixture);
            support::ready("");
        }
        other => panic!("{other}"),
    }
}

/// Does everything that a pair of domains does, and ends both.
fn cycle(fixture: &Fixture) {
    let (front, back) = (fixture.guest(FRONT), fixture.service());
    let granted = front.grant(BACK, 2, Access::ReadWrite).unwrap();
    let (mut f, mut b) = (front.events().unwrap(), back.events().unwrap());
    let port = f.alloc_unbound(BACK).unwrap();
    let ours = b.bind_interdomain(FRONT, port).unwrap();
    b.notify(ours).unwrap();
    assert_eq!(f.wait(port, 0, Some(GUARD)).unwrap(), 1, "no event came");
    let run = back.map(FRONT, &granted.grefs, Access::ReadWrite).unwrap();
    let mut arena = [0; 16];
    let mut ops = [grantway_hypervisor::CopyOp::new(
        grantway_hypervisor::CopySide::Foreign { domain: FRONT, gref: granted.grefs[0], offset: 9 },
        grantway_hypervisor::CopySide::Local { offset: 0 },
        16,
    )];
    back.copy(&mut arena, &mut ops).unwrap();
    assert!(ops[0].status.is_okay());
    let mut stores = [front.store().unwrap(), back.store().unwrap()];
    assert_eq!(stores[0].read("name").unwrap(), b"front");
    assert_eq!(stores[1].read("/local/domain/7/name").unwrap(), b"front");
    drop(run);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn a_folder_has_one_host() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("made/by/the/host");
    let host = Host::spawn(&inner).unwrap();
    match Host::bind(&inner, HostConfig::default()) {
        Err(error @ HostError::Busy { pid, .. }) => {
            assert_eq!(pid, std::process::id());
            assert!(error.to_string().starts_with("another host (pid "), "{error}");
        }
        other => panic!("{other:?}"),
    }
    Domain::connect(&inner, BACK, Role::Service).unwrap();
    host.stop().unwrap();
    assert!(!inner.join("control").exists());
    drop(Host::spawn(&inner).unwrap());
}

#[test]
fn a_folder_that_cannot_be_one_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let said = |path: &Path| Host::bind(path, HostConfig::default()).unwrap_err().to_string();
    for (path, word) in [
        (file.clone(), "is not a folder"),
        (file.join("below"), "is not a folder"),
        ("/proc/grantway".into(), "choose a --dir that you may write to"),
        (dir.path().join("x".repeat(120)), "shorter"),
    ] {
        let said = said(&path);
        assert!(said.contains(word) && !said.contains('\n'), "{said}");
    }
    for path in [dir.path(), &file, Path::new("/nowhere")] {
        let refused = Domain::connect(path, BACK, Role::Service).unwrap_err();
        assert!(matches!(refused, ConnectError::NoHost { .. }), "{refused}");
        assert!(refused.to_string().contains("grantway host --dir"), "{refused}");
    }
}

#[test]
fn a_killed_host_is_seen_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (process, _) = Process::start("part", "host", dir.path(), "");
    match Host::bind(dir.path(), HostConfig::default()) {
        Err(HostError::Busy { pid, .. }) => assert_eq!(pid, process.pid()),
        other => panic!("{other:?}"),
    }
    let tools = Domain::connect(dir.path(), BACK, Role::Service).unwrap();
    let mut events = tools.events().unwrap();
    let port = events.alloc_unbound(BACK).unwrap();
    let mut store = tools.store().unwrap();
    assert!(tools.host_is_alive());
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        process.kill();
    });
    // A wait without end does end.
    let gone = events.wait(port, 0, None).unwrap_err();
    assert!(matches!(gone, Error::Gone { .. }), "{gone}");
    killer.join().unwrap();
    assert!(!tools.host_is_alive());
    assert!(matches!(tools.host_tables(), Err(Error::Gone { .. })));
    assert!(matches!(tools.events(), Err(Error::Gone { .. })));
    assert!(matches!(tools.store(), Err(Error::Gone { .. })));
    assert!(matches!(store.read("/"), Err(Error::Gone { .. })));
    assert!(matches!(events.alloc_unbound(BACK), Err(Error::Gone { .. })));
    assert!(matches!(
        Domain::connect(dir.path(), BACK, Role::Service),
        Err(ConnectError::NoHost { .. })
    ));
    // The dead host's sockets still lie there.
    assert!(dir.path().join("control").exists());
    let _host = Host::spawn(dir.path()).unwrap();
    Domain::connect(dir.path(), BACK, Role::Service).unwrap();
}

#[test]
fn a_process_that_sends_nonsense_is_disconnected() {
    let fixture = Fixture::new();
    let mut numbers = Numbers::new(42);
    let address = SocketAddrUnix::new(fixture.dir().join("control")).unwrap();
    for round in 0..300 {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        for _ in 0..20 {
            let len = numbers.below(if round % 2 == 0 { 8 } else { 20_000 });
            let bytes: Vec<u8> = (0..len)
                .map(
                    |_| if round % 3 == 0 { numbers.below(16) as u8 } else { numbers.next() as u8 },
                )
                .collect();
            if rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
    }
    let tables = fixture.settles("they are gone", |tables| tables.connections == 1);
    assert_eq!(tables.event_sets, 0);
    cycle(&fixture);
}

#[test]
fn a_process_that_never_reads_its_answers_is_disconnected() {
    let fixture = Fixture::new();
    let address = SocketAddrUnix::new(fixture.dir().join("control")).unwrap();
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    // The hello of another version (postcard: variant, version, domid, guest), over and over.
    for _ in 0..100_000 {
        if rustix::net::send(&socket, &[0, 99, 0, 0], SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    fixture.settles("it is gone", |tables| tables.connections == 1);
}

/// The test runs in a process of its own, so that the descriptors of other tests do not count.
#[test]
fn a_thousand_cycles_leave_nothing_behind() {
    if std::env::var_os("GRANTWAY_ALONE").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_thousand_cycles_leave_nothing_behind", "--exact"])
            .env("GRANTWAY_ALONE", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let fixture = Fixture::new();
    let before = |fixture: &Fixture| {
        let tables = fixture.settles("only the toolstack is left", |tables| {
            tables.connections == 1 && tables.store_connections == 0
        });
        (descriptors(), mappings(), tables)
    };
    for _ in 0..10 {
        cycle(&fixture);
    }
    let (fds, maps, tables) = before(&fixture);
    for _ in 0..1000 {
        cycle(&fixture);
    }
    let (fds_after, maps_after, tables_after) = before(&fixture);
    assert_eq!(fds_after, fds, "descriptors");
    assert!(maps_after <= maps + 8, "mappings: {maps} then {maps_after}");
    assert_eq!(tables_after, tables);
}

#[test]
fn nothing_of_it_needs_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // If nobody may read the build folder, run a copy.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("hosts");
    grantway_testkit::copy_program(&std::env::current_exe().unwrap(), &copy);
    let tmp = dir.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    for path in [dir.path(), copy.as_path(), tmp.as_path()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let output = std::process::Command::new(&copy)
        .args(["part", "--exact", "--nocapture"])
        .env("GRANTWAY_PART", "cycle")
        .env("GRANTWAY_DIR", &tmp)
        .env("GRANTWAY_WORDS", "")
        .env("TMPDIR", &tmp)
        .current_dir(&tmp)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("READY"), "{output:?}");
}

/// Debian's client may talk to the host.
#[test]
fn a_stock_xenstore_client_reads_the_hosts_store() {
    if !met(&[Need::Program("xenstore-ls", "xenstore-utils")]) {
        return;
    }
    let fixture = Fixture::new();
    let listed = std::process::Command::new("xenstore-ls")
        .args(["-f", "/local"])
        .env("XENSTORED_PATH", fixture.dir().join("xenstored/socket"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("/local/domain/7/name = \"front\""), "{listed:?}");
}
