//! The bytes are a kubeconfig.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../rules.rs"]
mod rules;

fuzz_target!(|bytes: &[u8]| rules::kubeconfig(bytes));
