#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The settings of a candidate, and the task that takes part in the election.
mod candidate;
mod election;
mod request;

// The decisions, without I/O and clock.
mod decision;
mod record;

// What a holder uses: a clock that counts suspends, and the checks against it.
mod clock;
mod leadership;
mod status;

pub use candidate::{Candidate, InvalidCandidate};
pub use election::Election;
pub use leadership::{Leadership, LeaseGuard};
pub use status::{LeaseStatus, Role};
