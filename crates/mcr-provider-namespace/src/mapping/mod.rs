//! The mapping of requests and answers between a cluster that is a namespace, and its host.
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
