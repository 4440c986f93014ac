//! The sandbox in force: each deed is done by a process of its own, which this program
//! starts again to do it, and ends by it or not.

use grantway_needs::{Need, met, skip};
use grantway_sandbox::{Files, Host, Landlock, Missing, Offer, Part, Sandbox, SandboxError, Use};
use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;

/// Variable that names the deed which a process of this program is to do, and a folder for it.
const DEED: &str = "GRANTWAY_DEED";
const FOLDER: &str = "GRANTWAY_DEED_FOLDER";

/// The signal of a call that a filter stops.
const SIGSYS: i32 = libc::SIGSYS;

fn seccomp() -> bool {
    met(&[Need::File("/proc/sys/kernel/seccomp/actions_avail", "a kernel with seccomp")])
}

/// Returns true if the kernel has landlock of `version` or later.
fn landlock(version: u32) -> bool {
    let found = Offer::of_kernel(Path::new("/")).landlock;
    let has = matches!(found, Landlock::Version(found) if found >= version);
    if !has {
        skip(&format!("needs landlock {version}; found: {found:?}"));
    }
    has
}

/// The command that does a deed.
fn doing(deed: &str, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", "deed", "--nocapture", "--test-threads=1"])
        .env(DEED, deed)
        .env(FOLDER, folder)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null());
    command
}

/// Has a deed done.
fn done(deed: &str, folder: &Path) -> Output {
    let program = std::env::current_exe().unwrap();
    doing(deed, &program, folder).output().unwrap()
}

fn words(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}\n{err}", output.status)
}

/// The process ends by the deed.
fn is_stopped(deed: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = done(deed, folder.path());
    assert_eq!(output.status.signal(), Some(SIGSYS), "{deed}: {}", words(&output));
    let text = words(&output);
    assert!(text.contains("confined") && !text.contains("done"), "{deed}: {text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{deed} left something");
}

/// The process does the deed, and ends well.
fn is_done(deed: &str, folder: &Path) {
    let output = done(deed, folder);
    assert!(output.status.success(), "{deed}: {}", words(&output));
    assert!(words(&output).contains("done"), "{deed}: {}", words(&output));
}

macro_rules! stopped {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            if seccomp() {
                is_stopped(stringify!($name));
            }
        }
    )*};
}

stopped! {
    a_worker_that_opens_a_file_to_write
    a_worker_that_makes_a_file
    a_worker_that_removes_a_file
    a_worker_that_runs_a_program
    a_worker_that_becomes_a_program
    a_worker_that_starts_a_thread
    a_worker_that_makes_a_socket
    a_worker_that_connects
    a_worker_that_listens
    a_worker_that_kills_a_process
    a_worker_of_the_embedded_host_that_connects
    a_control_thread_that_becomes_a_program
    a_control_thread_that_runs_a_program
    a_thread_of_before_that_becomes_a_program
    a_thread_of_after_that_becomes_a_program
}

macro_rules! done {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            if seccomp() {
                is_done(stringify!($name), tempfile::tempdir().unwrap().path());
            }
        }
    )*};
}

done! {
    a_worker_that_opens_a_file_to_read_is_refused
    a_worker_that_makes_memory_executable_is_refused
    a_worker_that_asks_a_terminal_is_refused
    a_helper_keeps_no_capability
    a_worker_does_its_work
    a_worker_panics_and_the_process_goes_on
    a_kernel_without_landlock_runs_with_the_rest
    a_kernel_without_seccomp_runs_with_the_rest
}

#[test]
fn a_worker_aborts() {
    if !seccomp() {
        return;
    }
    let output = done("a_worker_aborts", Path::new("/"));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", words(&output));
}

#[test]
fn a_control_thread_opens_listed_files_only() {
    if landlock(1) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["own", "read", "write", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("file"), "x").unwrap();
        }
        is_done("a_control_thread_opens_listed_files_only", folder.path());
    }
}

#[test]
fn a_control_thread_makes_no_tcp_connection() {
    if landlock(4) {
        is_done("a_control_thread_makes_no_tcp_connection", Path::new("/"));
    }
}

#[test]
fn a_control_thread_connects_to_no_abstract_socket() {
    if landlock(6) {
        is_done("a_control_thread_connects_to_no_abstract_socket", Path::new("/"));
    }
}

#[test]
fn root_keeps_one_capability_and_a_worker_none() {
    if met(&[Need::Root]) {
        is_done("root_keeps_one_capability_and_a_worker_none", Path::new("/"));
    }
}

#[test]
fn a_user_without_rights_is_confined_like_root() {
    if !met(&[Need::Root]) || !seccomp() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The build may lie where that user sees nothing.
    let program = folder.path().join("deeds");
    grantway_testkit::copy_program(&std::env::current_exe().unwrap(), &program);
    let nobody = 65_534;
    std::os::unix::fs::chown(folder.path(), Some(nobody), Some(nobody)).unwrap();
    let deed = "a_user_without_rights_is_confined_like_root";
    let output = doing(deed, &program, folder.path()).uid(nobody).gid(nobody).output().unwrap();
    assert!(output.status.success() && words(&output).contains("done"), "{}", words(&output));
}

/// Does the deed that this process was started for, if any.
#[test]
fn deed() {
    let (Ok(deed), Some(folder)) = (std::env::var(DEED), std::env::var_os(FOLDER)) else { return };
    perform(&deed, &PathBuf::from(folder));
    say("done");
}

fn say(word: &str) {
    let _ = writeln!(std::io::stderr(), "{word}");
}

/// Performs a deed in this process.
fn perform(deed: &str, folder: &Path) {
    let file = folder.join("file");
    match deed {
        "a_worker_that_opens_a_file_to_write" => {
            works(Host::Xen, || drop(File::options().append(true).open("/dev/null")));
        }
        "a_worker_that_makes_a_file" => works(Host::Xen, || drop(File::create(&file))),
        "a_worker_that_removes_a_file" => works(Host::Xen, || drop(std::fs::remove_file(&file))),
        "a_worker_that_runs_a_program" => works(Host::Xen, || drop(Command::new("true").status())),
        "a_worker_that_becomes_a_program" => {
            works(Host::Xen, || drop(Command::new("/bin/true").exec()));
        }
        "a_worker_that_starts_a_thread" => {
            works(Host::Xen, || drop(std::thread::Builder::new().spawn(|| {})));
        }
        "a_worker_that_makes_a_socket" => works(Host::Xen, || drop(UnixStream::pair())),
        "a_worker_that_connects" => connect_from(Host::Xen),
        "a_worker_of_the_embedded_host_that_connects" => connect_from(Host::Embedded),
        "a_worker_that_listens" => {
            let socket = stream_socket();
            works(Host::Xen, || {
                let _ = rustix::net::listen(&socket, 1);
            });
        }
        "a_worker_that_kills_a_process" => works(Host::Xen, || {
            let _ = rustix::process::test_kill_process(rustix::process::getpid());
        }),
        "a_control_thread_that_becomes_a_program" => {
            enter(Host::Embedded);
            drop(Command::new("/bin/true").exec());
        }
        "a_control_thread_that_runs_a_program" => {
            enter(Host::Xen);
            // The child is stopped, too, and it is this process until it has its program.
            let status = Command::new("/bin/true").status();
            let stopped = status.is_ok_and(|status| status.signal() == Some(SIGSYS));
            assert!(stopped, "the child ran");
            drop(Command::new("/bin/true").exec());
        }
        "a_thread_of_before_that_becomes_a_program" => {
            let (go, wait) = channel();
            let before = std::thread::spawn(move || {
                let _ = wait.recv();
                drop(Command::new("/bin/true").exec());
            });
            enter(Host::Xen);
            let _ = go.send(());
            let _ = before.join();
        }
        "a_thread_of_after_that_becomes_a_program" => {
            enter(Host::Xen);
            let after = std::thread::spawn(|| drop(Command::new("/bin/true").exec()));
            let _ = after.join();
        }
        "a_worker_that_opens_a_file_to_read_is_refused" => works(Host::Xen, || {
            let error = File::open("/etc/passwd").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }),
        "a_worker_that_makes_memory_executable_is_refused" => works(Host::Xen, || {
            let memory = memmap2::MmapMut::map_anon(4096).unwrap();
            assert_eq!(memory.make_exec().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
        }),
        "a_worker_that_asks_a_terminal_is_refused" => works(Host::Xen, || {
            let error = rustix::termios::tcgetattr(std::io::stderr()).unwrap_err();
            assert_eq!(error, rustix::io::Errno::NOSYS);
        }),
        "a_helper_keeps_no_capability" => {
            enter(Host::None);
            let own = capabilities(None).unwrap();
            assert!((own.effective | own.permitted | own.inheritable).is_empty(), "{own:?}");
        }
        "a_worker_does_its_work" => {
            work(Host::Xen);
        }
        "a_worker_panics_and_the_process_goes_on" => {
            let sandbox = enter(Host::Xen);
            let ended = on_worker(&sandbox, || panic!("as it may"));
            assert!(ended.is_err());
        }
        "a_worker_aborts" => works(Host::Xen, || std::process::abort()),
        "a_kernel_without_landlock_runs_with_the_rest" => without_landlock(&file),
        "a_kernel_without_seccomp_runs_with_the_rest" => without_seccomp(),
        "a_control_thread_opens_listed_files_only" => listed_files(folder),
        "a_control_thread_makes_no_tcp_connection" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            enter(Host::Xen).close(&Files::new());
            is_denied(TcpStream::connect(at));
            is_denied(TcpListener::bind("127.0.0.1:0"));
        }
        "a_control_thread_connects_to_no_abstract_socket" => abstract_socket(),
        "root_keeps_one_capability_and_a_worker_none" => keeps_capabilities(),
        "a_user_without_rights_is_confined_like_root" => {
            let mut sandbox = enter(Host::Xen);
            sandbox.close(&Files::new().with(folder, Use::Own));
            assert!(holds(&sandbox, Part::Workers), "{:?}", sandbox.missing());
            assert!(on_worker(&sandbox, || drop(File::open("/etc/passwd"))).is_ok());
        }
        other => panic!("no deed {other}"),
    }
}

fn enter(host: Host) -> Sandbox {
    let sandbox = Sandbox::enter(host);
    say("confined");
    sandbox
}

fn holds(sandbox: &Sandbox, part: Part) -> bool {
    sandbox.held().contains(&part)
}

fn on_worker(sandbox: &Sandbox, deed: impl FnOnce() + Send) -> std::thread::Result<()> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            sandbox.worker().confine().unwrap();
            deed();
        });
        worker.join()
    })
}

/// Does something on a worker, which must come back from it.
fn works(host: Host, deed: impl FnOnce() + Send) {
    let sandbox = enter(host);
    assert!(holds(&sandbox, Part::Workers), "{:?}", sandbox.missing());
    on_worker(&sandbox, deed).unwrap();
}

fn stream_socket() -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
}

/// Connects a socket that was there before.
fn connect_from(host: Host) {
    let socket = stream_socket();
    let address = rustix::net::SocketAddrUnix::new("/nowhere").unwrap();
    works(host, || {
        let _ = rustix::net::connect(&socket, &address);
    });
}

/// Does the usual work of a worker, and what libraries do in its name.
fn work(host: Host) {
    use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    works(host, || {
        epoll::add(&waiter, &bell, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        let mut events = Vec::with_capacity(4);
        for wait in [Some(Timespec { tv_sec: 0, tv_nsec: 1_000 }), None] {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&waiter, buffer, wait.as_ref()).unwrap();
        }
        // A signal handler of this program writes so.
        rustix::net::send(&near, b"X", rustix::net::SendFlags::DONTWAIT).unwrap();
        rustix::thread::sched_yield();
        let mut map = HashMap::new();
        // The allocator grows, moves and gives back.
        for round in 0..64_usize {
            let mut blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 60_000]).collect();
            blocks[0].extend_from_slice(&vec![2; 1 << 22]);
            map.insert(round, blocks.iter().map(Vec::len).sum::<usize>());
        }
        assert_eq!(map.len(), 64);
        std::thread::sleep(std::time::Duration::from_micros(10));
        say("a line of the log");
        drop((bell, near));
    });
    drop(far);
}

/// Has the kernel answer as one that has not got these calls.
fn pretend_without(calls: &[libc::c_long]) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
    let rules = calls.iter().map(|&call| (call, vec![])).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let here = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, here).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

fn without_landlock(file: &Path) {
    pretend_without(&[libc::SYS_landlock_create_ruleset]);
    let mut sandbox = enter(Host::Xen);
    sandbox.close(&Files::new());
    let [Missing { part: Part::Files, why: SandboxError::NoLandlock }] = sandbox.missing() else {
        panic!("{:?}", sandbox.missing());
    };
    assert!(sandbox.missing()[0].to_string().contains("Linux 5.13"));
    assert_eq!((sandbox.held().len(), sandbox.landlock()), (4, None));
    // The control thread opens what its user may.
    File::create(file).unwrap();
    on_worker(&sandbox, || drop(File::open("/etc/passwd").unwrap_err())).unwrap();
}

fn without_seccomp() {
    pretend_without(&[libc::SYS_seccomp]);
    let sandbox = enter(Host::Xen);
    let missing: Vec<Part> = sandbox.missing().iter().map(|missing| missing.part).collect();
    assert_eq!(missing, [Part::Programs, Part::Workers]);
    assert_eq!(sandbox.held(), [Part::Privileges, Part::Capabilities]);
    assert!(rustix::thread::no_new_privs().unwrap());
    on_worker(&sandbox, || drop(File::open("/etc/passwd").unwrap())).unwrap();
}

#[track_caller]
fn is_denied<T>(result: Result<T, Error>) {
    let error = result.err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

fn listed_files(folder: &Path) {
    let [own, read, write, other] = ["own", "read", "write", "other"].map(|name| folder.join(name));
    let list = Files::new()
        .with(&own, Use::Own)
        .with(&read, Use::Read)
        .with(&write, Use::Write)
        .with("/dev/null", Use::Device)
        .with("/nowhere/at/all", Use::Own);
    let mut sandbox = enter(Host::Xen);
    sandbox.close(&list);
    assert!(holds(&sandbox, Part::Files), "{:?}", sandbox.missing());
    assert!(matches!(sandbox.landlock(), Some(Landlock::Version(1..))));

    std::fs::create_dir_all(own.join("more")).unwrap();
    std::fs::write(own.join("more/file"), "y").unwrap();
    assert_eq!(std::fs::read(own.join("more/file")).unwrap(), b"y");
    drop(std::os::unix::net::UnixListener::bind(own.join("socket")).unwrap());
    std::fs::remove_file(own.join("socket")).unwrap();
    std::fs::remove_dir_all(own.join("more")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", own.join("link")).unwrap_err();

    assert_eq!(std::fs::read(read.join("file")).unwrap(), b"x");
    is_denied(File::options().write(true).open(read.join("file")));
    is_denied(File::create(read.join("new")));

    std::fs::write(write.join("new"), "z").unwrap();
    is_denied(File::open(write.join("new")));
    is_denied(std::fs::remove_file(write.join("new")));

    File::options().read(true).write(true).open("/dev/null").unwrap();
    is_denied(File::open(other.join("file")));
    is_denied(File::create(other.join("new")));
    is_denied(File::open("/etc/passwd"));
    // Threads that it starts are no way round.
    let later = std::thread::spawn(|| is_denied(File::open("/etc/passwd")));
    later.join().unwrap();
}

fn abstract_socket() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("grantway-deed-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    drop(UnixStream::connect_addr(&address).unwrap());
    enter(Host::Xen).close(&Files::new());
    let error = UnixStream::connect_addr(&address).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
}

fn keeps_capabilities() {
    let sandbox = enter(Host::Xen);
    let own = capabilities(None).unwrap();
    assert_eq!(
        (own.permitted, own.effective),
        (CapabilitySet::NET_ADMIN, CapabilitySet::NET_ADMIN)
    );
    assert_eq!(own.inheritable, CapabilitySet::empty());
    assert!(capability_is_in_bounding_set(CapabilitySet::NET_ADMIN).unwrap());
    for other in [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE, CapabilitySet::CHOWN] {
        assert!(!capability_is_in_bounding_set(other).unwrap());
    }
    let ((here, from_worker), (go, until)) = (channel(), channel());
    let sandbox = &sandbox;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sandbox.worker().confine().unwrap();
            here.send(rustix::thread::gettid()).unwrap();
            let _: Result<(), _> = until.recv();
        });
        let thread = from_worker.recv().unwrap().as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
            assert_eq!(u64::from_str_radix(line.trim(), 16), Ok(0), "{set} {line}");
        }
        drop(go);
    });
}
