//! What one cluster that is a namespace asks, said so that its host understands it, and the answers the other way round.
//!
//! No I/O happens here: [`crate::send`] does it.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod field_rules;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod refuse;
