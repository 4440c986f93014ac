//! The filters, run by a small machine of classic BPF: what becomes of every call.

use super::*;
use calls::{FORBIDDEN, FORBIDDEN_HERE, REACHING, STOPPED, STOPPED_HERE};

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const EACCES: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;

/// Calls that a kernel may have, and some that it may get.
const CALLS: std::ops::Range<i64> = 0..1024;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xc000_00f3;

/// Runs a program on a call with these arguments, and returns the verdict. Words are those of
/// `seccomp_data`.
fn run(program: &BpfProgram, architecture: u32, call: i64, arguments: &[u64]) -> u32 {
    let word = |at: u32| match at {
        0 => call as u32,
        4 => architecture,
        16.. => {
            let argument = arguments.get((at as usize - 16) / 8).copied().unwrap_or(0);
            (argument >> (8 * (at % 8))) as u32
        }
        _ => 0,
    };
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let step = &program[at];
        at += 1;
        let taken = match step.code {
            // ld [k]
            0x20 => {
                accumulator = word(step.k);
                continue;
            }
            // and #k
            0x54 => {
                accumulator &= step.k;
                continue;
            }
            // ja k
            0x05 => {
                at += step.k as usize;
                continue;
            }
            // ret #k
            0x06 => return step.k,
            0x15 => accumulator == step.k,
            0x25 => accumulator > step.k,
            0x35 => accumulator >= step.k,
            code => panic!("instruction {code:#x}"),
        };
        at += usize::from(if taken { step.jt } else { step.jf });
    }
}

/// Ranks a verdict: the kernel takes the strictest, and of two errors that of the last filter.
fn rank(answer: u32) -> u32 {
    match answer & libc::SECCOMP_RET_ACTION_FULL {
        KILL => 0,
        libc::SECCOMP_RET_ERRNO => 1,
        _ => 2,
    }
}

/// Returns the verdict of a worker's filters together with its process's.
fn worker_gets(host_reaches: bool, call: i64, arguments: &[u64]) -> u32 {
    let mut filters = vec![process(host_reaches).unwrap()];
    filters.extend(worker(host_reaches, &[], OWN as u32).unwrap());
    let answers = filters.iter().rev().map(|filter| run(filter, ARCHITECTURE, call, arguments));
    answers.min_by_key(|&answer| rank(answer)).unwrap()
}

fn thread_gets(call: i64, arguments: &[u64]) -> u32 {
    run(&process(false).unwrap(), ARCHITECTURE, call, arguments)
}

/// The process's own number.
const OWN: u64 = 77;

#[test]
fn a_worker_may_make_only_listed_calls() {
    let listed = [calls::ALLOWED, calls::ALLOWED_HERE].concat();
    let stopped = [STOPPED, STOPPED_HERE, FORBIDDEN, FORBIDDEN_HERE, REACHING].concat();
    let ruled = [
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_tgkill,
        libc::SYS_sendto,
        libc::SYS_ioctl,
        libc::SYS_fcntl,
        libc::SYS_openat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
    ];
    for call in CALLS.filter(|call| !ruled.contains(call)) {
        let expected = match call {
            _ if listed.contains(&call) => ALLOW,
            _ if stopped.contains(&call) => KILL,
            _ => ENOSYS,
        };
        assert_eq!(worker_gets(false, call, &[]), expected, "call {call}");
    }
}

#[test]
fn a_worker_opens_nothing() {
    for &(call, flags) in calls::OPENING {
        let opens = |asked: i32| {
            let mut arguments = [0; 6];
            arguments[usize::from(flags)] = asked as u64;
            worker_gets(false, call, &arguments)
        };
        assert_eq!(opens(libc::O_RDONLY | libc::O_CLOEXEC), EACCES);
        assert_eq!(opens(libc::O_PATH), EACCES);
        for asked in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE] {
            let asked = asked | if asked == libc::O_TMPFILE { libc::O_RDWR } else { 0 };
            assert_eq!(opens(asked | libc::O_CLOEXEC), KILL, "{asked:#o}");
        }
    }
}

#[test]
fn a_worker_makes_no_memory_executable() {
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let (plain, code) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_EXEC);
        assert_eq!(worker_gets(false, call, &[0, 4096, plain as u64]), ALLOW);
        assert_eq!(worker_gets(false, call, &[0, 4096, (plain | code) as u64]), ENOSYS);
    }
}

#[test]
fn a_worker_signals_its_own_process_only() {
    assert_eq!(worker_gets(false, libc::SYS_tgkill, &[OWN, 5, 6]), ALLOW);
    assert_eq!(worker_gets(false, libc::SYS_tgkill, &[1, 1, 9]), ENOSYS);
}

#[test]
fn a_worker_sends_to_no_address() {
    assert_eq!(worker_gets(false, libc::SYS_sendto, &[3, 4, 1, 0, 0, 0]), ALLOW);
    // Also where the lower half of the address is zero.
    for address in [1, 1 << 32] {
        assert_eq!(worker_gets(false, libc::SYS_sendto, &[3, 4, 1, 0, address, 16]), ENOSYS);
    }
}

#[test]
fn a_worker_moves_bursts_only_if_it_has_a_packet_socket() {
    let with = worker(false, calls::BURSTS, OWN as u32).unwrap();
    for &call in calls::BURSTS {
        assert_eq!(worker_gets(false, call, &[]), ENOSYS);
        assert!(with.iter().all(|filter| run(filter, ARCHITECTURE, call, &[]) == ALLOW));
    }
}

#[test]
fn a_worker_asks_its_devices_and_its_tap() {
    let asks = |request: u64| worker_gets(false, libc::SYS_ioctl, &[3, request, 0]);
    // IOCTL_GNTDEV_GRANT_COPY, IOCTL_GNTDEV_MAP_GRANT_REF, IOCTL_EVTCHN_NOTIFY.
    for request in [0x0010_4708, 0x0018_4700, 0x0004_4504] {
        assert_eq!(asks(request), ALLOW, "{request:#x}");
    }
    // TUNSETOFFLOAD, TUNGETIFF, TUNSETCARRIER.
    for request in [0x4004_54d0, 0x8004_54d2, 0x4004_54e2] {
        assert_eq!(asks(request), ALLOW, "{request:#x}");
    }
    // TCGETS, SIOCSIFFLAGS, SIOCGIFINDEX.
    for request in [0x5401, 0x8914, 0x8933] {
        assert_eq!(asks(request), ENOSYS, "{request:#x}");
    }
    for &request in calls::TYPING {
        assert_eq!(asks(request), KILL);
        assert_eq!(thread_gets(libc::SYS_ioctl, &[0, request]), KILL);
    }
}

#[test]
fn only_workers_of_the_embedded_host_reach_into_processes() {
    for &call in REACHING {
        assert_eq!((worker_gets(true, call, &[]), worker_gets(false, call, &[])), (ALLOW, KILL));
        assert_eq!(thread_gets(call, &[]), KILL);
    }
    for &call in calls::ALLOWED_EMBEDDED {
        assert_eq!((worker_gets(true, call, &[]), worker_gets(false, call, &[])), (ALLOW, ENOSYS));
    }
}

#[test]
fn other_threads_may_make_all_calls_but_forbidden_ones() {
    let forbidden = [FORBIDDEN, FORBIDDEN_HERE, REACHING].concat();
    for call in CALLS {
        let expected = if forbidden.contains(&call) { KILL } else { ALLOW };
        assert_eq!(thread_gets(call, &[]), expected, "call {call}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_the_x32_table_get_around_no_limit() {
    for &call in FORBIDDEN.iter().chain(FORBIDDEN_HERE).chain(REACHING).chain(calls::X32_OWN) {
        assert_eq!(thread_gets(call | calls::X32, &[]), KILL, "call {call}");
    }
    for call in CALLS {
        assert_ne!(worker_gets(true, call | calls::X32, &[]), ALLOW, "call {call}");
    }
    // Nor is that of 32-bit programs.
    let i386 = 0x4000_0003;
    assert_eq!(run(&process(false).unwrap(), i386, 3, &[]), KILL);
}

#[test]
fn no_call_is_listed_twice() {
    let lists = [calls::ALLOWED, calls::ALLOWED_HERE, REACHING, calls::ALLOWED_EMBEDDED];
    let allowed = [lists.concat(), calls::BURSTS.to_vec()];
    let stopped = [STOPPED, STOPPED_HERE, FORBIDDEN, FORBIDDEN_HERE];
    let mut all = [allowed.concat(), stopped.concat()].concat();
    let listed = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), listed);
}

#[test]
fn programs_fit_the_kernel() {
    // BPF_MAXINSNS.
    let most = 4096;
    assert!(process(false).unwrap().len() <= most);
    assert!(worker(true, calls::BURSTS, 1).unwrap().iter().all(|program| program.len() <= most));
}
