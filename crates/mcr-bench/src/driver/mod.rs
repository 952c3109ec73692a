//! The environment of the subjects: their servers, their processes and their arguments.

pub mod backend;
pub mod child;
mod counts;
pub mod kcp;
pub mod real;
pub mod sim;
mod who;
pub mod work;

pub use backend::Backend;
pub use child::Running;
pub use counts::Counts;
pub use who::{Job, Programs, Subject};
