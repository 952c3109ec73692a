//! The bytes are what an exec credential plugin prints.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../rules.rs"]
mod rules;

fuzz_target!(|bytes: &[u8]| rules::exec_output(bytes));
