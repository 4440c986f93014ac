//! Addresses that a vif may give as a frame's source.

pub(crate) mod allowed;

pub use allowed::Allowed;

use crate::node::{Context, Edge, Single, Step};
use crate::rules::Rules;
use std::sync::Arc;

/// Drops frames that claim to be from another sender than their vif.
#[derive(Debug, Default)]
pub struct AntiSpoof {
    rules: Arc<Rules>,
}

impl AntiSpoof {
    /// Frames whose addresses are those of their vif.
    pub const ON: Edge = Edge(0);
}

impl Single for AntiSpoof {
    fn name(&self) -> &'static str {
        "anti-spoofing"
    }

    #[inline]
    fn process(&mut self, number: u8, context: &mut Context<'_>) -> Step {
        let frame = context.batch.frame(number);
        let Some(vif) = self.rules.vif(frame.from).filter(|vif| !vif.allowed.is_anything()) else {
            return Step::To(Self::ON);
        };
        match vif.allowed.check(frame.bytes(context.arena), context.batch.headers(number)) {
            Ok(()) => Step::To(Self::ON),
            Err(reason) => Step::Drop(reason),
        }
    }

    fn idle(&self) -> Option<Edge> {
        self.rules.vifs.iter().all(|vif| vif.allowed.is_anything()).then_some(Self::ON)
    }

    fn reload(&mut self, rules: &Arc<Rules>) {
        self.rules = rules.clone();
    }
}
