//! The bytes are the response to a GET.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../rules.rs"]
mod rules;

fuzz_target!(|bytes: &[u8]| rules::response(bytes));
