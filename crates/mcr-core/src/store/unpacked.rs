//! In the place of [`packing`](super::packing) without the feature `packed`: nothing is packed.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Form, Object};
use crate::{fleet::StoreFormat, watch::WatchRequest};

/// There is none.
#[derive(Debug)]
pub(crate) enum Dictionary {}

impl Dictionary {
    pub(crate) fn pack<T>(&self, _: &[u8], _: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match *self {}
    }

    pub(crate) fn unpack(&self, _: &[u8], _: &mut [u8]) -> Result<(), Damaged> {
        match *self {}
    }
}

/// What is packed does not unpack.
#[derive(Debug, thiserror::Error)]
#[error("it is packed, and this program is built without the feature packed")]
pub(crate) struct Damaged;

/// There is none.
pub(crate) enum Packers {}

impl Packers {
    pub(crate) fn of(_: &StoreFormat) -> Option<Self> {
        None
    }

    pub(crate) fn kind(&self, _: &WatchRequest) -> Arc<Packer> {
        match *self {}
    }

    pub(crate) async fn run(&self, _: CancellationToken) {
        match *self {}
    }
}

/// There is none.
pub(crate) enum Packer {}

impl Packer {
    pub(crate) fn hold(&self, _: Object) -> Arc<Object> {
        match *self {}
    }

    pub(crate) async fn packed(&self) -> Form {
        match *self {}
    }
}
