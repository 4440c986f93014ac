//! Checks with names, which are counted.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of a check for an event that must happen. It only guards against hanging.
pub const GUARD: Duration = Duration::from_secs(120);

/// Result of a check: nothing, or the fault.
pub type Outcome = Result<(), String>;

#[derive(Debug, Default)]
pub struct Checks {
    passed: usize,
    failed: usize,
}

impl Checks {
    /// Runs a check and prints its name and outcome.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Outcome) {
        match body() {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name}");
            }
            Err(what) => {
                self.failed += 1;
                println!("FAILED  {name}: {what}");
            }
        }
    }

    pub fn finish(&self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Returns the value, or the error as text.
pub fn get<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

/// Returns an error unless both values are equal.
pub fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, expected {expected:?}"))
    }
}

/// Returns the error `what` unless `so` is true.
pub fn is(what: &str, so: bool) -> Outcome {
    if so { Ok(()) } else { Err(what.to_owned()) }
}
