//! Makes the copies of related objects, and cleans them up.

mod carry;
mod look;
mod watch;

pub(crate) use self::watch::{forget_cluster, forget_source, watches};
