//! Which processor a process runs on, and what it has in memory.

use crate::error::CommandError;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Pins the calling thread, and threads that it starts later, to a processor.
///
/// # Errors
///
/// There is no such processor, or it is not ours to use.
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

/// What a process has in memory, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Pages that are there, those that it shares with others included.
    pub resident: u64,
    /// Those that are its own.
    pub private: u64,
}

impl Memory {
    /// Of a process; nothing of one that is not there.
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

    /// What came to it.
    pub fn since(self, before: Self) -> Self {
        Self {
            resident: self.resident.saturating_sub(before.resident),
            private: self.private.saturating_sub(before.private),
        }
    }
}

/// What this process has in memory: a file that stays open, as a confined process may open
/// none.
pub struct OwnMemory(Option<File>);

impl OwnMemory {
    /// Opens it.
    pub fn open() -> Self {
        Self(File::open("/proc/self/status").ok())
    }

    /// Reads it as it is now; nothing where there is no `/proc`.
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
