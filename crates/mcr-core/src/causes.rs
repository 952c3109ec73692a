//! The causes of an error that may be one of users, and their text.

use std::{borrow::Cow, error::Error, io, iter::successors};

use kube::{client::AuthError, core::Status};
use mcr_access::reason;
use mcr_client::explain_error;

/// The most causes of an error that are read: `source` is code of users, and may lead in a circle.
const MOST_CAUSES: usize = 64;

/// The error, its cause, the cause of that, and so on.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |&error: &&'a (dyn Error + 'static)| match error.downcast_ref::<io::Error>() {
        // `io::Error::source` skips the error that it wraps.
        Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    };
    successors(Some(error), cause).take(MOST_CAUSES)
}

/// The response of an API server with a failure. The source of `kube::Error::Api` is a boxed one.
pub fn status_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    let boxed = || error.downcast_ref::<Box<Status>>().map(|status| &**status);
    error.downcast_ref::<Status>().or_else(boxed)
}

/// The error and its causes in one line, without control and format characters, of at most 300 characters.
pub fn text_of_causes(error: &(dyn Error + 'static)) -> String {
    let status = causes(error).find_map(status_of);
    let mut text = String::new();
    for cause in causes(error).take_while(|cause| !cause.is::<AuthError>()) {
        let cause = own_text(cause, status);
        // Many errors contain the text of their cause.
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    // The text of a login error, and those of its causes, quote what a credential plugin wrote.
    if let Some(login) = causes(error).find(|error| error.is::<AuthError>()) {
        let own = explain_error(login);
        text = text.replace(&login.to_string(), &own);
        if text.is_empty() {
            text = own;
        } else if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
    }
    // The text of a JSON error quotes values, which may be those of a Secret.
    for json in causes(error).filter_map(|error| error.downcast_ref::<serde_json::Error>()) {
        text = text.replace(&json.to_string(), &mcr_store::describe(json));
    }
    reason(&text)
}

/// The text of an error without that of its causes. `kube::Error::Api` shows the `Debug` form of `status`, which is long.
fn own_text(error: &(dyn Error + 'static), status: Option<&Status>) -> String {
    let Some(status) = status else {
        return error.to_string();
    };
    let short = short(status);
    if status_of(error).is_some() {
        return short;
    }
    let of_kube = format!("ApiError: {status} ({status:?})");
    error.to_string().replace(&of_kube, &short)
}

/// `403 Forbidden: message`.
fn short(status: &Status) -> String {
    let code = (status.code != 0).then(|| status.code.to_string());
    let name: Vec<&str> = code.iter().map(|code| &**code).chain([&*status.reason]).collect();
    let parts = [Cow::from(name.join(" ")), Cow::from(&status.message)];
    let parts: Vec<&str> = parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(": ")
}
