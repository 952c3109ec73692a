//! The environment of the subjects: their servers, their processes and their arguments.

pub mod child;
pub mod link;
pub mod servers;
mod who;
pub mod work;

pub use child::Running;
pub use servers::Servers;
pub use who::{Job, Programs, Subject};
