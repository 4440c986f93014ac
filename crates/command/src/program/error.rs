//! Errors of finding and running another program.

/// Reason for which another program did not run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no program of this name.
    #[error(
        "the program {name} is missing: it is neither in {beside} nor in PATH; build it: cargo \
         build --release -p {name}; or install its package"
    )]
    Missing {
        /// Its name. Its package has that name, too.
        name: String,
        /// The folder of the program that looked for it.
        beside: String,
    },
    /// The system does not run it.
    #[error("{path}: {source}; expected a program for this machine")]
    Refused {
        /// Its path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}
