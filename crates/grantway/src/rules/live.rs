//! The rules file of a running backend.

use super::read;
use grantway_backend::Backend;
use grantway_command::error::CommandError;
use grantway_vector::Secret;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Returns two random numbers that nobody outside can guess.
///
/// # Errors
///
/// The system gives no random numbers.
pub fn secret() -> Result<Secret, CommandError> {
    Secret::random().map_err(|e| CommandError::Failed(format!("getrandom: {e}")))
}

/// A rules file, and the result of the last time it was read.
pub struct LiveRules {
    path: PathBuf,
    secret: Secret,
    loaded: u64,
    refused: Option<String>,
}

impl LiveRules {
    /// Takes a file, without reading it.
    #[must_use]
    pub fn new(path: &Path, secret: Secret) -> Self {
        Self { path: path.to_owned(), secret, loaded: 0, refused: None }
    }

    /// Reads the file. The backend uses the rules from its next list on.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid. The previous rules stay loaded.
    pub fn load(&mut self, backend: &mut Backend) -> Result<(), CommandError> {
        let loaded = read(&self.path).and_then(|text| {
            let loaded = backend.load(&text, self.secret);
            loaded.map_err(|e| CommandError::Failed(format!("{}: {e}", self.path.display())))
        });
        match &loaded {
            Ok(()) => (self.loaded, self.refused) = (self.loaded + 1, None),
            Err(e) => self.refused = Some(e.to_string()),
        }
        loaded
    }

    /// Returns JSON: the file, the number of times it was loaded, and the reason if it was refused
    /// the last time.
    #[must_use]
    pub fn report(&self) -> Value {
        json!({ "file": self.path, "loaded": self.loaded, "refused": self.refused })
    }
}
