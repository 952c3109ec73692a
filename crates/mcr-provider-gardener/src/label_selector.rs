//! Parses label selectors, for seeds, where no API server applies them.

use kube::core::{Expression, Selector};

/// Parses a label selector in the form of kubectl, such as `env in (dev,test),!old`. `None` if it is not valid.
pub(crate) fn parse(text: &str) -> Option<Selector> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        // Commas also separate the values of a set.
        let end = match (rest.find(','), rest.find('(')) {
            (Some(comma), Some(set)) if set < comma => set + rest[set..].find(')')? + 1,
            (Some(comma), _) => comma,
            (None, _) => rest.len(),
        };
        let (part, more) = rest.split_at(end);
        parts.push(expression(part.trim())?);
        rest = more.trim_start();
        if !rest.is_empty() {
            rest = rest
                .strip_prefix(',')
                .map(str::trim_start)
                .filter(|rest| !rest.is_empty())?;
        }
    }
    Some(parts.into_iter().collect())
}

fn expression(text: &str) -> Option<Expression> {
    let key = |key: &str| is_name(key, "/").then(|| key.to_owned());
    if let Some((left, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(key(left.trim())?, word(value)?));
    }
    if let Some((left, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(key(left.trim())?, word(value)?));
    }
    if let Some((left, values)) = text.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(word);
        let values = values.collect::<Option<_>>()?;
        let (left, operator) = left.trim().rsplit_once(char::is_whitespace)?;
        let left = key(left.trim())?;
        return match operator {
            "in" => Some(Expression::In(left, values)),
            "notin" => Some(Expression::NotIn(left, values)),
            _ => None,
        };
    }
    match text.strip_prefix('!') {
        Some(left) => Some(Expression::DoesNotExist(key(left.trim())?)),
        None => Some(Expression::Exists(key(text)?)),
    }
}

/// The value of a label. It may be empty.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    (text.is_empty() || is_name(text, "")).then(|| text.to_owned())
}

fn is_name(text: &str, more: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char) || more.contains(char);
    !text.is_empty() && text.chars().all(fits)
}

#[cfg(test)]
mod tests;
