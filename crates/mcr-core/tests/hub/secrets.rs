//! Kubeconfigs in Secrets.

use mcr_core::hub::SecretContent;
use serde_json::{Value, json};

#[test]
fn what_is_wrong_with_a_secret_is_named_and_nothing_of_it_is_quoted() {
    let take = |data: Value| {
        let mut secret: SecretContent = serde_json::from_value(json!({"data": data})).unwrap();
        secret.take("value")
    };
    assert_eq!(take(json!({"value": "YWJj", "other": 1})).unwrap(), b"abc");
    for (data, why, is_absent) in [
        (json!(null), "has no key \"value\"", true),
        (json!({"other": "YQ=="}), "has no key \"value\"", true),
        (json!({"value": ""}), "is empty", true),
        (json!({"value": "SESAME!"}), "not base64", false),
        (json!({"value": 8}), "not base64", false),
    ] {
        let problem = take(data).unwrap_err();
        assert!(
            problem.why.contains(why) && !problem.why.contains("SESAME"),
            "{problem:?}"
        );
        assert_eq!(problem.is_absent, is_absent, "{problem:?}");
    }
}
