//! A program that is built with neither `ring` nor `aws-lc-rs`. `cargo xtask test --full` runs it so.
#![cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]

use mcr::{Manager, ManagerError};

#[test]
fn a_manager_without_cryptography_is_not_built_and_names_what_to_do() {
    let error = Manager::builder().build().unwrap_err();
    assert!(matches!(error, ManagerError::NoCryptoProvider(_)));
    let text = error.to_string();
    assert!(
        text.contains("turn on the feature ring or aws-lc-rs of mcr"),
        "{text}"
    );
}
