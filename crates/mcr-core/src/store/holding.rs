//! How the objects of a kind are held.

use std::sync::Arc;

use super::{Packer, Shapes};

/// What those of all clusters are held with.
#[derive(Clone)]
pub(crate) enum Holding {
    /// Each without what it has in common with others.
    Shaped(Arc<Shapes>),
    /// Packed.
    Packed(Arc<Packer>),
}
