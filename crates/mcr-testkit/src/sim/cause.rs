use std::fmt;

/// One reason why an object is invalid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn forbidden(field: &str, why: impl fmt::Display) -> Self {
        Self::of(field, "FieldValueForbidden", format!("Forbidden: {why}"))
    }

    pub(crate) fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self::of(field, "FieldValueRequired", message)
    }

    /// `shown` is the value as the message shows it: text in quotes.
    pub(crate) fn invalid(field: &str, shown: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::of(
            field,
            "FieldValueInvalid",
            format!("Invalid value: {shown}: {why}"),
        )
    }

    pub(crate) fn unsupported(field: &str, shown: impl fmt::Display, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let message = format!(
            "Unsupported value: {shown}: supported values: {}",
            supported.join(", ")
        );
        Self::of(field, "FieldValueNotSupported", message)
    }

    pub(crate) fn of(field: &str, reason: &'static str, message: String) -> Self {
        Self {
            field: field.to_owned(),
            reason,
            message,
        }
    }
}
