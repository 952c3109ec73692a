//! The bytes are a kubeconfig.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcr_core::fuzzing::kubeconfig(bytes));
