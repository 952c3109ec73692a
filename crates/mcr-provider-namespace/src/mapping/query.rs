//! Maps the query of a request. The field selector is the only parameter that can contain namespaces.

use std::borrow::Cow;

use super::{
    field_rules::{FieldRules, Rule},
    names::Names,
};

const FIELD_SELECTOR: &str = "fieldSelector";

/// Whether the request is a watch, as the API server decides it: by the first value of `watch`, where every value but
/// two means yes.
pub(crate) fn is_watch(query: Option<&str>) -> bool {
    let parameters = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let first = parameters.into_iter().find(|(key, _)| key == "watch");
    first.is_some_and(|(_, value)| !value.eq_ignore_ascii_case("false") && value != "0")
}

/// Maps the field selector of a query, and adds a term to it if the request has to be narrowed.
///
/// The term is a field and a value. The result has exactly one field selector that counts, in front of all other
/// parameters: an API server uses the first, however a query may repeat or hide others.
pub(crate) fn mapped(
    query: Option<&str>,
    field_rules: &FieldRules,
    names: &Names,
    narrow: Option<(&str, &str)>,
) -> Option<String> {
    let is_selector =
        |pair: &&str| form_urlencoded::parse(pair.as_bytes()).any(|(key, _)| key == FIELD_SELECTOR);
    let pairs: Vec<&str> = query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .collect();
    let asked = pairs.iter().find(|pair| is_selector(pair)).and_then(|pair| {
        form_urlencoded::parse(pair.as_bytes())
            .next()
            .map(|(_, value)| value.into_owned())
    });
    if asked.is_none() && narrow.is_none() {
        return query.map(str::to_owned);
    }
    let mut terms: Vec<String> = narrow
        .iter()
        .map(|(field, value)| format!("{field}={}", escaped(value)))
        .collect();
    terms.extend(
        asked
            .iter()
            .filter(|asked| !asked.is_empty())
            .map(|asked| selector(asked, field_rules, names)),
    );
    let value: String = form_urlencoded::byte_serialize(terms.join(",").as_bytes()).collect();
    let others = pairs
        .into_iter()
        .filter(|pair| !is_selector(pair))
        .map(str::to_owned);
    let all: Vec<String> = [format!("{FIELD_SELECTOR}={value}")]
        .into_iter()
        .chain(others)
        .collect();
    Some(all.join("&"))
}

/// Maps the terms of a field selector that are about namespaces.
fn selector(selector: &str, field_rules: &FieldRules, names: &Names) -> String {
    let terms: Vec<Cow<'_, str>> = terms(selector)
        .into_iter()
        .map(|term| mapped_term(term, field_rules, names))
        .collect();
    terms.join(",")
}

/// The terms of a field selector for one watch over all clusters: those without namespaces. `None` if a term with a
/// namespace is not true in every cluster.
pub(crate) fn of_all(selector: &str, field_rules: &FieldRules, inside: Option<&str>) -> Option<String> {
    let mut left = Vec::new();
    for term in terms(selector) {
        let about = operator(term).and_then(|(at, operator)| {
            let (_, rule) = field_rules
                .iter()
                .find(|(field_path, _)| field_path.join(".") == term[..at])?;
            Some((*rule, operator, unescaped(&term[at + operator.len()..])))
        });
        match about {
            None => left.push(term),
            // Every object is in the namespace of its cluster.
            Some((Rule::Own, "=" | "==", Some(name))) if Some(&*name) == inside => {}
            Some(_) => return None,
        }
    }
    Some(left.join(","))
}

fn mapped_term<'a>(term: &'a str, field_rules: &FieldRules, names: &Names) -> Cow<'a, str> {
    let Some((at, operator)) = operator(term) else {
        return term.into();
    };
    let (field, value) = (&term[..at], &term[at + operator.len()..]);
    if !field_rules
        .iter()
        .any(|(field_path, _)| field_path.join(".") == field)
    {
        return term.into();
    }
    // A value that can't be unescaped stays, and the API server refuses it.
    match unescaped(value) {
        Some(name) => format!("{field}{operator}{}", escaped(names.swap(&name))).into(),
        None => term.into(),
    }
}

fn operator(term: &str) -> Option<(usize, &'static str)> {
    term.char_indices().find_map(|(at, _)| {
        let operator = ["!=", "==", "="]
            .into_iter()
            .find(|operator| term[at..].starts_with(operator))?;
        Some((at, operator))
    })
}

/// Splits a selector at the commas that are not escaped.
fn terms(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escape) = (Vec::new(), 0, false);
    for (at, c) in selector.char_indices() {
        match c {
            _ if escape => escape = false,
            '\\' => escape = true,
            ',' => {
                terms.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescaped(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::field_rules;

    fn island() -> Names {
        Names::of(&"island".into(), false).unwrap()
    }

    fn map(query: &str, narrow: Option<(&str, &str)>) -> String {
        mapped(Some(query), field_rules::of("", "events"), &island(), narrow).unwrap()
    }

    /// The field selector as the API server reads it.
    fn fields(query: &str) -> String {
        let query = map(query, None);
        let (first, value) = form_urlencoded::parse(query.as_bytes()).next().unwrap();
        assert_eq!(first, FIELD_SELECTOR, "{query}");
        value.into_owned()
    }

    #[test]
    fn terms_about_namespaces_are_mapped_both_ways() {
        let cases = [
            ("metadata.namespace%3Ddefault", "metadata.namespace=island"),
            ("metadata.namespace=default", "metadata.namespace=island"),
            ("metadata.namespace==default", "metadata.namespace==island"),
            ("metadata.namespace!=default", "metadata.namespace!=island"),
            // The real name is no namespace inside the cluster, so the term must match no object.
            ("metadata.namespace=island", "metadata.namespace=default"),
            ("metadata.namespace!=island", "metadata.namespace!=default"),
            ("metadata.namespace=zoo", "metadata.namespace=zoo"),
            ("metadata.namespace=", "metadata.namespace="),
            ("metadata.name=default", "metadata.name=default"),
            (
                "involvedObject.namespace=default,type!=Normal",
                "involvedObject.namespace=island,type!=Normal",
            ),
            ("regarding.namespace=default", "regarding.namespace=island"),
            (
                "a=b\\,c,metadata.namespace=default",
                "a=b\\,c,metadata.namespace=island",
            ),
            ("metadata.namespace=\\default", "metadata.namespace=\\default"),
            ("metadata.namespace=a\\=b", "metadata.namespace=a\\=b"),
            ("nonsense", "nonsense"),
            ("metadata.namespace", "metadata.namespace"),
        ];
        for (asked, sent) in cases {
            assert_eq!(fields(&format!("limit=5&fieldSelector={asked}")), sent, "{asked}");
        }
    }

    #[test]
    fn events_have_more_such_fields_than_others() {
        let query = Some("fieldSelector=involvedObject.namespace%3Ddefault");
        let pods = mapped(query, field_rules::of("", "pods"), &island(), None).unwrap();
        assert_eq!(pods, "fieldSelector=involvedObject.namespace%3Ddefault");
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for query in [
            "",
            "watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=290",
            "limit=500&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ%3D%3D&labelSelector=a%3Ddefault,metadata.namespace%3Ddefault",
            "dryRun=All&fieldManager=me&force=true&x;y=%zz",
        ] {
            assert_eq!(map(query, None), query);
        }
        assert_eq!(mapped(None, field_rules::of("", "pods"), &island(), None), None);
        assert_eq!(
            map("a=1&fieldSelector=x%3Dy&b=2", None),
            "fieldSelector=x%3Dy&a=1&b=2"
        );
    }

    #[test]
    fn nothing_gets_around_what_narrows() {
        let narrow = Some(("metadata.name", "island"));
        let start = "fieldSelector=metadata.name%3Disland";
        assert_eq!(map("", narrow), start);
        assert_eq!(map("fieldSelector=", narrow), start);
        for (asked, rest) in [
            ("fieldSelector=a%3Db", "%2Ca%3Db"),
            // The API server drops a pair with a semicolon. It keeps one with an escaped semicolon.
            ("fieldSelector=a%3Db;c", "%2Ca%3Db%3Bc"),
            ("field%53elector=a%3Db", "%2Ca%3Db"),
            ("fieldSelector=a%3Db&fieldSelector=c%3Dd", "%2Ca%3Db"),
            ("fieldSelector;=x", "&fieldSelector;=x"),
            ("x=1&fieldSelector=a%3Db%zz", "%2Ca%3Db%25zz&x=1"),
        ] {
            assert_eq!(map(asked, narrow), format!("{start}{rest}"), "{asked}");
        }
        let odd = map("", Some(("metadata.namespace", "a,b=c\\")));
        assert_eq!(odd, "fieldSelector=metadata.namespace%3Da%5C%2Cb%5C%3Dc%5C%5C");
    }

    #[test]
    fn in_a_watch_for_all_clusters_only_what_is_true_in_each_is_left_out() {
        let left = |selector, inside| of_all(selector, field_rules::of("", "events"), inside);
        let default = Some("default");
        assert_eq!(left("metadata.namespace=default", default).as_deref(), Some(""));
        assert_eq!(
            left("a=b,metadata.namespace==default,c!=d", default).as_deref(),
            Some("a=b,c!=d")
        );
        assert_eq!(left("type=Normal", None).as_deref(), Some("type=Normal"));
        for some in [
            "metadata.namespace!=default",
            "metadata.namespace=island",
            "metadata.namespace=def\\ault",
            "involvedObject.namespace=default",
            "a=b,regarding.namespace!=x",
        ] {
            assert_eq!(left(some, default), None, "{some}");
        }
        assert_eq!(left("metadata.namespace=default", None), None);
    }

    #[test]
    fn watches_are_reported_as_the_api_server_does() {
        for yes in [
            "watch=true",
            "watch=1",
            "watch",
            "watch=",
            "a=b&watch=yes",
            "w%61tch=true",
            "watch=1&watch=0",
        ] {
            assert!(is_watch(Some(yes)), "{yes}");
        }
        for no in [
            "",
            "watch=false",
            "watch=0",
            "watch=FALSE",
            "Watch=true",
            "watch=0&watch=1",
        ] {
            assert!(!is_watch(Some(no)), "{no}");
        }
        assert!(!is_watch(None));
    }
}
