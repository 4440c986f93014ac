//! Log of one backend.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines in order.
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<(Level, String)>>);

impl Log {
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets them.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Warnings and errors.
    pub fn complaints(&self) -> Vec<String> {
        let bad = self.lines().into_iter().filter(|(level, _)| *level <= Level::WARN);
        bad.map(|(_, line)| line).collect()
    }
}

/// Collects for the thread that it is the default of.
pub struct Collector(pub Arc<Log>);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut lines = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{value:?}");
    }
}
