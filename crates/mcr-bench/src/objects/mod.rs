//! Objects that are similar to those of real clusters. Their texts differ from object to object, and are the same in
//! every run.

mod large;
mod similar;
mod small;

pub use large::large_pod;
pub use similar::{BEAT, beat, config_map, custom, definition, deployment, pod};
pub use small::{event, namespace, role, role_binding, secret, service, service_account};
