//! The filters of system calls, from the lists of [`calls`](crate::calls).

use crate::calls;
use crate::error::SandboxError;
use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters of a thread, in the order in which they are installed: the last one may forbid to
/// install more. If several filters judge a call, the strictest verdict counts.
pub(crate) type Programs = Vec<BpfProgram>;

/// For all threads. `reaches` where copies reach into other processes.
pub(crate) fn process(reaches: bool) -> Result<BpfProgram, SandboxError> {
    let mut rules = Rules::new();
    forbid(&mut rules, calls::FORBIDDEN);
    forbid(&mut rules, calls::FORBIDDEN_HERE);
    if !reaches {
        forbid(&mut rules, calls::REACHING);
    }
    let typing = calls::TYPING.iter().map(|&request| when(1, Len::Dword, Op::Eq, request));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    compile(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// For a worker, whose process has the filter of [`process`] already. It may make the calls of
/// `more`, too.
pub(crate) fn worker(
    reaches: bool,
    more: &[c_long],
    process_id: u32,
) -> Result<Programs, SandboxError> {
    let mut stopped = Rules::new();
    forbid(&mut stopped, calls::STOPPED);
    forbid(&mut stopped, calls::STOPPED_HERE);
    let mut refused = Rules::new();
    for &(call, flags) in calls::OPENING {
        stopped.insert(call, writing(flags)?);
        refused.insert(call, Vec::new());
    }
    let access = SeccompAction::Errno(libc::EACCES as u32);
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    Ok(vec![
        compile(stopped, SeccompAction::Allow, SeccompAction::KillProcess)?,
        compile(refused, SeccompAction::Allow, access)?,
        compile(allowed(reaches, more, process_id)?, unknown, SeccompAction::Allow)?,
    ])
}

fn allowed(reaches: bool, more: &[c_long], process_id: u32) -> Result<Rules, SandboxError> {
    let mut rules = Rules::new();
    let mut allow = |calls: &[c_long]| rules.extend(calls.iter().map(|&call| (call, Vec::new())));
    allow(calls::ALLOWED);
    allow(calls::ALLOWED_HERE);
    allow(more);
    if reaches {
        allow(calls::REACHING);
        allow(calls::ALLOWED_EMBEDDED);
    }
    // What becomes of them is said by the other filters.
    for &(call, _) in calls::OPENING {
        rules.insert(call, Vec::new());
    }
    // No memory is made executable.
    let harmless = || when(2, Len::Dword, Op::MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mmap, vec![harmless()?]);
    rules.insert(libc::SYS_mprotect, vec![harmless()?]);
    // Signals go to this process only; an abort sends one.
    let own = when(0, Len::Dword, Op::Eq, process_id.into())?;
    rules.insert(libc::SYS_tgkill, vec![own]);
    // A signal handler writes to its end of a pair of sockets; to no address.
    let connected = when(4, Len::Qword, Op::Eq, 0)?;
    rules.insert(libc::SYS_sendto, vec![connected]);
    let requests = calls::REQUESTS.iter();
    let requests = requests.map(|group| when(1, Len::Dword, Op::MaskedEq(group.mask), group.value));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    let controls = calls::CONTROLS.iter();
    let controls = controls.map(|&command| when(1, Len::Dword, Op::Eq, command as u64));
    rules.insert(libc::SYS_fcntl, controls.collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Returns rules that match if the flags of an `open` ask for more than reading.
fn writing(flags: u8) -> Result<Vec<SeccompRule>, SandboxError> {
    let asks = |mask: i32, value: i32| when(flags, Len::Dword, masked(mask), value as u64);
    Ok(vec![
        asks(libc::O_ACCMODE, libc::O_WRONLY)?,
        asks(libc::O_ACCMODE, libc::O_RDWR)?,
        asks(libc::O_CREAT, libc::O_CREAT)?,
        asks(libc::O_TRUNC, libc::O_TRUNC)?,
    ])
}

fn masked(mask: i32) -> Op {
    Op::MaskedEq(mask as u64)
}

/// A rule of one condition.
fn when(argument: u8, len: Len, op: Op, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, len, op, value)?])
}

/// Forbids calls with any arguments, in every call table of the processor.
fn forbid(rules: &mut Rules, calls: &[c_long]) {
    rules.extend(calls.iter().map(|&call| (call, Vec::new())));
    #[cfg(target_arch = "x86_64")]
    {
        let second = calls.iter().chain(calls::X32_OWN).map(|&call| call | calls::X32);
        rules.extend(second.map(|call| (call, Vec::new())));
    }
}

fn compile(
    rules: Rules,
    other: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let here = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, other, listed, here)?.try_into()?)
}

#[cfg(test)]
mod tests;
