//! The bytes are what an exec credential plugin prints.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcr_core::fuzzing::exec_output(bytes));
