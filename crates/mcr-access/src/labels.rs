//! The labels that a kubeconfig gives to its contexts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    document::{Context, NamedCluster},
    error::{AccessError, quote},
    unprintable::is_unprintable,
};

/// The name of the extension of a context, or of a cluster entry, that holds labels. Programs other than mcr ignore it,
/// and kubectl keeps it when it writes the file.
pub const LABELS_EXTENSION: &str = "mcr.dev/labels";

/// Takes the labels out of a cluster entry, and adds those of the context, which win.
///
/// The cluster entry loses its labels so that a change of labels leaves the access as it is.
///
/// # Errors
/// If a label is not text, or has control or format characters.
pub(crate) fn take_labels(
    name: &str,
    context: &Context,
    cluster: &mut NamedCluster<'_>,
) -> Result<BTreeMap<String, String>, AccessError> {
    let mut labels = BTreeMap::new();
    let entry = cluster.name.as_deref().unwrap_or_default();
    let field = format!("clusters[name={}].cluster.extensions", quote(entry));
    if let Some(inner) = &mut cluster.cluster
        && let Some(extensions) = &mut inner.extensions
    {
        let is_labels = |name: &Option<String>| name.as_deref() == Some(LABELS_EXTENSION);
        for extension in extensions.iter().filter(|extension| is_labels(&extension.name)) {
            add(&mut labels, &field, &extension.extension)?;
        }
        extensions.retain(|extension| !is_labels(&extension.name));
        if extensions.is_empty() {
            inner.extensions = None;
        }
    }
    let field = format!("contexts[name={}].context.extensions", quote(name));
    let extensions = match &context.extensions {
        None | Some(Value::Null) => &[],
        Some(Value::Array(extensions)) => extensions.as_slice(),
        Some(_) => {
            return Err(AccessError::invalid(
                field,
                format!(
                    "is not a list; write - {{name: {LABELS_EXTENSION}, extension: {{KEY: VALUE}}}} for labels"
                ),
            ));
        }
    };
    for extension in extensions {
        if extension.get("name").and_then(Value::as_str) == Some(LABELS_EXTENSION) {
            add(
                &mut labels,
                &field,
                extension.get("extension").unwrap_or(&Value::Null),
            )?;
        }
    }
    Ok(labels)
}

fn add(labels: &mut BTreeMap<String, String>, field: &str, extension: &Value) -> Result<(), AccessError> {
    let field = |key: &str| format!("{field}[name=\"{LABELS_EXTENSION}\"].extension{key}");
    let Value::Object(entries) = extension else {
        return Err(AccessError::invalid(
            field(""),
            "is not a mapping of texts; write extension: {KEY: VALUE}",
        ));
    };
    for (key, value) in entries {
        let of_key = || field(&format!("[{}]", quote(key)));
        let Value::String(value) = value else {
            return Err(AccessError::invalid(
                of_key(),
                "is not text, as a label must be; put its value in quotes",
            ));
        };
        if key.is_empty() || key.contains(is_unprintable) || value.contains(is_unprintable) {
            return Err(AccessError::invalid(
                of_key(),
                "is a label without a key, or has control or format characters; write visible characters",
            ));
        }
        labels.insert(key.clone(), value.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::{AccessError, ContextAccess, KubeconfigFile, contexts};

    fn found(context: &str, cluster: &str) -> ContextAccess {
        let text = format!(
            "contexts:\n- name: eu\n  context:\n    cluster: c\n{context}\
             clusters:\n- name: c\n  cluster:\n    server: https://c\n{cluster}"
        );
        contexts(&[KubeconfigFile::new("/kc", text)]).remove(0)
    }

    fn labels(context: &str, cluster: &str) -> BTreeMap<String, String> {
        found(context, cluster).labels
    }

    fn error(context: &str, cluster: &str) -> String {
        match found(context, cluster).access {
            Err(error @ AccessError::Invalid { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn of(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        labels.iter().map(owned).collect()
    }

    const CONTEXT: &str = "    extensions:\n    - {name: context_info, extension: {provider: minikube}}\n    \
                           - {name: mcr.dev/labels, extension: {env: prod}}\n";
    const CLUSTER: &str = "    extensions:\n    - {name: mcr.dev/labels, extension: {env: dev, region: eu}}\n    \
                           - {name: other, extension: {x: y}}\n";

    #[test]
    fn labels_stand_in_the_context_and_in_the_cluster_and_the_context_wins() {
        assert_eq!(labels("", ""), of(&[]));
        assert_eq!(labels(CONTEXT, ""), of(&[("env", "prod")]));
        assert_eq!(labels("", CLUSTER), of(&[("env", "dev"), ("region", "eu")]));
        assert_eq!(labels(CONTEXT, CLUSTER), of(&[("env", "prod"), ("region", "eu")]));
        for none in ["    extensions:\n", "    extensions: []\n"] {
            assert_eq!(labels(none, none), of(&[]));
        }
    }

    #[test]
    fn labels_are_no_part_of_the_access() {
        let yaml = |context: &str, cluster: &str| found(context, cluster).access.unwrap().yaml;
        let own = |env: &str| {
            format!("    extensions:\n    - {{name: mcr.dev/labels, extension: {{env: {env}}}}}\n")
        };
        assert_eq!(yaml("", ""), yaml(&own("a"), &own("b")));
        let text = String::from_utf8(yaml(CONTEXT, CLUSTER).to_vec()).unwrap();
        assert!(text.contains("other") && !text.contains("mcr.dev"), "{text}");
    }

    #[test]
    fn a_malformed_extension_is_an_error_of_its_context_with_the_field() {
        let labels =
            |value: &str| format!("    extensions: [{{name: mcr.dev/labels, extension: {value}}}]\n");
        let context = "contexts[name=\"eu\"].context.extensions";
        let cluster = "clusters[name=\"c\"].cluster.extensions";
        assert_eq!(
            error(&labels("{env: true}"), ""),
            format!(
                "{context}[name=\"mcr.dev/labels\"].extension[\"env\"]: is not text, as a label must be; put its value in \
                 quotes"
            )
        );
        assert_eq!(
            error("", &labels("[env]")),
            format!(
                "{cluster}[name=\"mcr.dev/labels\"].extension: is not a mapping of texts; write extension: {{KEY: VALUE}}"
            )
        );
        assert_eq!(
            error("    extensions: {mcr.dev/labels: {env: prod}}\n", ""),
            format!(
                "{context}: is not a list; write - {{name: mcr.dev/labels, extension: {{KEY: VALUE}}}} for labels"
            )
        );
        let hidden = error(&labels("{env: \"pr\\u202eod\"}"), "");
        assert!(
            hidden.contains("[\"env\"]: is a label without a key, or has control"),
            "{hidden}"
        );
        assert!(error("    extensions: [{name: mcr.dev/labels}]\n", "").contains("is not a mapping"));
    }
}
