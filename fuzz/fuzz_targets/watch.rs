//! The bytes are the body of a watch.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcr_core::fuzzing::watch(bytes));
