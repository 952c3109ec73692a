//! Removes values of objects from error texts. Errors quote values, and a value may be secret.

use std::{error::Error, iter::successors};

use mcr::{BoxError, core::internal::describe_json_error};
use serde::de::Error as _;

/// The texts after which an API server quotes a value. The last one begins an element of a set in the path of a field,
/// as in `tags[="value"]`.
const BEFORE_A_VALUE: [&str; 8] = [
    "Invalid value: ",
    "Unsupported value: ",
    "Duplicate value: ",
    "Not found: ",
    "parsing time ",
    "parsing ",
    "cannot unmarshal number ",
    "[=",
];

/// Replaces each value in the text of an API server with `…`.
fn without_values(text: &str) -> String {
    // If the first line reports a forbidden change, the following lines show the change with its values.
    let mut rest = match text.split_once('\n') {
        Some((first, _)) if first.contains(": Forbidden: ") => first,
        _ => text,
    };
    let mut kept = String::new();
    let next = |rest: &str| {
        let found = BEFORE_A_VALUE
            .iter()
            .filter_map(|mark| Some((rest.find(mark)?, mark.len())));
        // If two of these texts begin at the same position, the longer one counts, because the value begins after it.
        found.min_by_key(|(at, length)| (*at, usize::MAX - length))
    };
    while let Some((at, length)) = next(rest) {
        let (before, value) = rest.split_at(at + length);
        kept.push_str(before);
        kept.push('…');
        rest = &value[length_of_value(value)..];
    }
    kept.push_str(rest);
    kept
}

/// The length of the value at the beginning of a text, as Go prints it: a quoted text, a text in brackets, or a word.
fn length_of_value(text: &str) -> usize {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' if depth > 0 => depth -= 1,
            ':' | ',' | ' ' | ']' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// Removes all values of objects from the error of a client.
pub(crate) fn without_quoted_values(mut error: kube::Error) -> kube::Error {
    match &mut error {
        kube::Error::Api(status) => {
            status.message = without_values(&status.message);
            for cause in status.details.iter_mut().flat_map(|details| &mut details.causes) {
                cause.message = without_values(&cause.message);
                cause.field = without_values(&cause.field);
            }
        }
        kube::Error::SerdeError(json) => *json = serde_json::Error::custom(describe_json_error(json)),
        _ => {}
    }
    error
}

/// Removes quoted values from an error that a function of the user has returned.
///
/// Only a JSON error among its causes quotes values without the user's intent. The rest of the text is left as the
/// user wrote it.
pub(crate) fn without_quoted_json(error: BoxError) -> BoxError {
    let first: &(dyn Error + 'static) = &*error;
    let causes = successors(Some(first), |&error| error.source());
    let json = causes.filter_map(|cause| cause.downcast_ref::<serde_json::Error>());
    let quoting: Vec<String> = json.map(ToString::to_string).collect();
    if quoting.is_empty() {
        return error;
    }
    let text = error.to_string();
    let text = quoting.iter().fold(text, |text, json| {
        text.replace(json, "a value is not valid for its type")
    });
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_quotes_is_left_out_and_its_words_stay() {
        for (text, reported) in [
            ("no value at all", "no value at all"),
            (
                r#"W "w" is invalid: spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"#,
                r#"W "w" is invalid: spec.size: Invalid value: …: spec.size in body should be less than or equal to 10"#,
            ),
            (
                r#"[spec.a: Unsupported value: "ca\"na: ry": supported values: "x", "y", spec.b: Invalid value: "string": spec.b in body must be of type integer: "string"]"#,
                r#"[spec.a: Unsupported value: …: supported values: "x", "y", spec.b: Invalid value: …: spec.b in body must be of type integer: "string"]"#,
            ),
            (
                r#"spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string{"app":"ca: nary"}}: field is immutable"#,
                "spec.selector: Invalid value: …: field is immutable",
            ),
            (
                r#"spec: Invalid value: {"a":"can}ary, x"}: no, metadata.name: Duplicate value: "canary""#,
                "spec: Invalid value: …: no, metadata.name: Duplicate value: …",
            ),
            (
                r#"parsing time "canary x" as "2006""#,
                r#"parsing time … as "2006""#,
            ),
            (
                r#"strconv.Atoi: parsing "canary": invalid syntax"#,
                "strconv.Atoi: parsing …: invalid syntax",
            ),
            (
                "json: cannot unmarshal number 77 into Go",
                "json: cannot unmarshal number … into Go",
            ),
            (
                r#".spec.tags[="can]ary"].x and .ports[port=80]"#,
                ".spec.tags[=…].x and .ports[port=80]",
            ),
            (
                "spec: Forbidden: may not change\n- canary\n+ other",
                "spec: Forbidden: may not change",
            ),
        ] {
            assert_eq!(without_values(text), reported);
        }
    }
}
