//! Every system call and every `unsafe` of this crate. The modules here know descriptors and
//! mappings, and nothing of domains.

mod memory;
mod message;
mod process;
mod run;
mod wake;

pub use memory::{Mapping, Words, WordsView, seal_for_readers, shared_memory};
pub use message::{MESSAGE_MAX, receive, send};
pub use process::{Transfer, let_peers_reach_us};
pub use run::{PageRun, PageSource};
pub use wake::Wake;
