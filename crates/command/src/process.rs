//! The processor that a process runs on, and the memory that it has.

use crate::error::CommandError;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Pins the calling thread, and threads that it starts later, to a processor.
///
/// # Errors
///
/// There is no such processor, or this process may not use it.
pub fn pin(cpu: usize) -> Result<(), CommandError> {
    let failed = |why: String| {
        CommandError::Failed(format!("--cpu {cpu}: {why}, expected a processor of `taskset -p $$`"))
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(failed(format!("above {}", CpuSet::MAX_CPU - 1)));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| failed(e.to_string()))
}

/// Memory of a process, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Pages in memory, including those that are shared with other processes.
    pub resident: u64,
    /// Pages in memory that are the process's own.
    pub private: u64,
}

impl Memory {
    /// Returns the memory of a process. All is 0 if there is no such process.
    pub fn of(process: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        Self::parse(&status.unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or(0) * 1024
        };
        Self { resident: bytes("VmRSS:"), private: bytes("RssAnon:") }
    }

    /// Returns the growth since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            resident: self.resident.saturating_sub(before.resident),
            private: self.private.saturating_sub(before.private),
        }
    }
}

/// The memory of this process: a file that stays open, since a confined process may open none.
pub struct OwnMemory(Option<File>);

impl OwnMemory {
    /// Opens the file.
    pub fn open() -> Self {
        Self(File::open("/proc/self/status").ok())
    }

    /// Reads the memory of this process as it is now. All is 0 if there is no `/proc`.
    pub fn read(&self) -> Memory {
        let mut text = [0; 8192];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        Memory::parse(&String::from_utf8_lossy(&text[..read.unwrap_or(0)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_says() {
        let status = "Name:\tgrantway\nVmRSS:\t    1636 kB\nRssAnon:\t     112 kB\n";
        let memory = Memory::parse(status);
        assert_eq!(memory, Memory { resident: 1636 * 1024, private: 112 * 1024 });
        let before = Memory { resident: 1024, private: 1 << 30 };
        assert_eq!(memory.since(before), Memory { resident: 1635 * 1024, private: 0 });
        assert!(Memory::of(std::process::id()).resident > 0);
        let own = OwnMemory::open();
        assert!(own.read().resident > 0 && own.read().private > 0, "as often as it is read");
    }
}
