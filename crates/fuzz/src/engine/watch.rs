//! Inputs that a target does not come back from.

use std::sync::{Arc, Mutex, PoisonError};

/// The input that is being tried, and how many were tried before.
#[derive(Debug, Default)]
struct Tried {
    number: u64,
    input: Option<Vec<u8>>,
}

/// Knows what is being tried, and says so where it takes too long.
#[derive(Debug)]
pub(super) struct Watch(Arc<Mutex<Tried>>);

impl Watch {
    /// Calls `late` with an input that takes `longest` ticks or more. `tick` waits for
    /// one: of time that the program ran.
    pub(super) fn start(
        longest: u32,
        mut tick: impl FnMut() + Send + 'static,
        late: impl Fn(&[u8]) + Send + 'static,
    ) -> Self {
        let tried = Arc::new(Mutex::new(Tried::default()));
        let looked = Arc::downgrade(&tried);
        std::thread::spawn(move || {
            let (mut before, mut ticks) = (0, 0);
            loop {
                tick();
                // Nobody tries anything any more.
                let Some(tried) = looked.upgrade() else { return };
                let tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
                let same = tried.number == before && tried.input.is_some();
                ticks = if same { ticks + 1 } else { 0 };
                before = tried.number;
                if let Some(input) = tried.input.as_deref().filter(|_| ticks >= longest) {
                    late(input);
                }
            }
        });
        Self(tried)
    }

    /// An input is tried, or none from now on.
    pub(super) fn tries(&self, input: Option<&[u8]>) {
        let mut tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tried.number += 1;
        match (input, &mut tried.input) {
            (Some(new), Some(old)) => new.clone_into(old),
            (new, old) => *old = new.map(<[u8]>::to_vec),
        }
    }
}
