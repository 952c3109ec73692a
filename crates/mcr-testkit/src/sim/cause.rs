use std::fmt;

/// One reason why an object is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub field: String,
    pub reason: &'static str,
    pub message: String,
}

impl Cause {
    pub fn forbidden(field: &str, why: impl fmt::Display) -> Self {
        Self::of(field, "FieldValueForbidden", format!("Forbidden: {why}"))
    }

    pub fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self::of(field, "FieldValueRequired", message)
    }

    /// `shown` is the value as the message shows it. Text is in quotes.
    pub fn invalid(field: &str, shown: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::of(
            field,
            "FieldValueInvalid",
            format!("Invalid value: {shown}: {why}"),
        )
    }

    pub fn unsupported(field: &str, shown: impl fmt::Display, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let message = format!(
            "Unsupported value: {shown}: supported values: {}",
            supported.join(", ")
        );
        Self::of(field, "FieldValueNotSupported", message)
    }

    pub fn of(field: &str, reason: &'static str, message: String) -> Self {
        Self {
            field: field.to_owned(),
            reason,
            message,
        }
    }
}
