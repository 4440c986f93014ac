//! Inputs that a target does not come back from.

use grantway_fuzz::corpus::encode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long one input may take, in seconds that the program ran.
const LONGEST: u32 = 10;

/// Knows the input that is being tried, and since when.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<(u64, Vec<u8>)>>);

impl Watch {
    /// Begins to watch.
    pub fn start(target: &'static str) -> Self {
        let watch = Self::default();
        let inner = watch.clone();
        std::thread::spawn(move || {
            let (mut before, mut seconds) = (0, 0);
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let Ok(now) = inner.0.lock() else { return };
                seconds = if now.0 == before { seconds + 1 } else { 0 };
                before = now.0;
                if seconds == LONGEST {
                    let input = encode(&now.1);
                    eprintln!("fuzz: {target}: no end within {LONGEST} s for the input {input}");
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    /// An input is tried from now on.
    pub fn tries(&self, input: &[u8]) {
        if let Ok(mut now) = self.0.lock() {
            now.0 += 1;
            now.1.clear();
            now.1.extend_from_slice(input);
        }
    }
}
