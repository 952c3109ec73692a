//! What stands around the subjects: the servers they talk to, their processes, what they are started with.

pub mod backend;
pub mod child;
mod counts;
pub mod real;
pub mod sim;
mod who;

pub use backend::Backend;
pub use child::Running;
pub use counts::Counts;
pub use who::{Job, Programs, Subject};
