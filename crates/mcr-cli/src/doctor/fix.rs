//! Fixes: the advice of providers and of this command, with the values of placeholders filled in.

use mcr_core::doctor::{Advice, Doctor, Fault, Fix, Values};

/// The advice on faults on which a provider has none. `request PATH` stands for a command that sends this request.
pub(super) const GENERAL: &[Advice] = &[
    Advice::new(
        Fault::Address,
        "loopback",
        "give an address that other machines reach, or allow this one with --allow-loopback",
        "",
    ),
    Advice::new(
        Fault::Address,
        "",
        "give an address that other machines reach",
        "",
    ),
    Advice::new(
        Fault::Description,
        "",
        "correct the description of the cluster",
        "",
    ),
    Advice::new(
        Fault::OtherName,
        "",
        "correct the address, or set tls-server-name",
        "",
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "renew the credentials where the provider gets them from",
        "",
    ),
    Advice::new(
        Fault::Unreached,
        "connection refused",
        "start the API server, or correct the address, then try",
        "request /livez",
    ),
    Advice::new(
        Fault::Unreached,
        "(waited for",
        "check firewalls and routes between here and {address}",
        "",
    ),
    Advice::new(Fault::Unreached, "", "", "request /livez"),
    Advice::new(
        Fault::Unanswered,
        "(waited for",
        "restart the API server, or correct the port, then try",
        "request /livez",
    ),
    Advice::new(Fault::Unanswered, "", "", "request /version"),
];

/// The first row that fits, of the provider's table or else of the general table.
fn find(doctor: &dyn Doctor, on: Fault, reason: &str, values: &Values) -> Option<Advice> {
    let mut rows = doctor.advice().iter().chain(GENERAL);
    let fits =
        |row: &&Advice| row.on == on && reason.contains(row.when) && filled(&fix(row, values)).is_some();
    rows.find(fits).copied()
}

/// Whether the fault is normal for the provider.
pub(super) fn is_normal(doctor: &dyn Doctor, on: Fault, values: &Values) -> bool {
    find(doctor, on, "", values).is_some_and(|row| row.action.is_empty() && row.command.is_empty())
}

/// The advice on a fault. `None` if there is none.
pub(super) fn advise(doctor: &dyn Doctor, on: Fault, reason: &str, values: &Values) -> Option<Fix> {
    let row = find(doctor, on, reason, values)?;
    (!row.action.is_empty() || !row.command.is_empty()).then(|| fix(&row, values))
}

fn fix(row: &Advice, values: &Values) -> Fix {
    Fix {
        action: row.action.into(),
        command: row.command.into(),
        values: values.clone(),
    }
}

/// A fix without placeholders.
pub(super) fn plain(action: &str, command: &'static str) -> Fix {
    Fix {
        action: action.to_owned().into(),
        command: command.into(),
        ..Fix::default()
    }
}

/// The lines of a fix: commands have a line of their own, so that they can be copied. `None` if a placeholder has no
/// value.
pub(super) fn filled(fix: &Fix) -> Option<Vec<String>> {
    let action = fill(&fix.action, &fix.values, str::to_owned)?;
    let command = fill(&fix.command, &fix.values, quoted)?;
    Some(match (action.is_empty(), command.is_empty()) {
        (true, _) => vec![command],
        (false, true) => vec![action],
        (false, false) => vec![format!("{action}:"), command],
    })
}

fn fill(template: &str, values: &Values, shown: impl Fn(&str) -> String) -> Option<String> {
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) if is_name(name) => {
                text.push_str(&shown(values.get(name)?));
                text.push_str(rest);
            }
            _ => {
                text.push('{');
                text.push_str(part);
            }
        }
    }
    Some(text)
}

/// One word for a shell, in quotes if it needs them.
fn quoted(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._/-:=@,+".contains(char);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "fix_tests.rs"]
mod tests;
