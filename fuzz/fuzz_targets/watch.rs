//! The bytes are the body of a watch.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../rules.rs"]
mod rules;

fuzz_target!(|bytes: &[u8]| rules::watch(bytes));
