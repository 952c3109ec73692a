//! The rights of the ServiceAccount.

use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;

/// The rules, as in a Role. An unknown field is an error, because a mistyped field would change the rights unnoticed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Rule>,
    // The other fields of a Role, which are ignored.
    #[serde(default, rename = "apiVersion")]
    _api_version: Option<serde_json::Value>,
    #[serde(default, rename = "kind")]
    _kind: Option<serde_json::Value>,
    #[serde(default, rename = "metadata")]
    _metadata: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    verbs: Vec<String>,
}

/// The default rules of Go's script: read ConfigMaps.
pub(super) fn default() -> Vec<PolicyRule> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    vec![PolicyRule {
        api_groups: Some(words(&[""])),
        resources: Some(words(&["configmaps"])),
        verbs: words(&["list", "get", "watch"]),
        ..PolicyRule::default()
    }]
}

pub(super) fn read(path: &Path) -> anyhow::Result<Vec<PolicyRule>> {
    let named = || format!("--rules-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    parse(&text).with_context(named)
}

fn parse(text: &str) -> anyhow::Result<Vec<PolicyRule>> {
    let file: File =
        serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false }).context(
            "has to be YAML with a list `rules`, each with apiGroups, resources and verbs, as in a Role",
        )?;
    if file.rules.is_empty() {
        bail!("rules: is empty; give at least one, or --skip-create-rbac");
    }
    let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    let mut rules = Vec::new();
    for (number, rule) in file.rules.into_iter().enumerate() {
        let problem = if rule.verbs.is_empty() {
            Some("verbs: is empty; a rule without verbs allows nothing")
        } else if rule.non_resource_urls.is_empty() && rule.resources.is_empty() {
            Some("resources: is missing; name what the verbs are about")
        } else if !rule.resources.is_empty() && rule.api_groups.is_empty() {
            Some("apiGroups: is missing; write [\"\"] for the core group")
        } else {
            None
        };
        if let Some(problem) = problem {
            bail!("rules[{number}].{problem}");
        }
        rules.push(PolicyRule {
            api_groups: some(rule.api_groups),
            resources: some(rule.resources),
            resource_names: some(rule.resource_names),
            non_resource_urls: some(rule.non_resource_urls),
            verbs: rule.verbs,
        });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::AFTER_HELP;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn the_rules_in_the_help_are_those_without_a_file() {
        let (_, shown) = AFTER_HELP.split_once("  rules:").unwrap();
        let (shown, _) = shown.split_once("\n\n").unwrap();
        assert_eq!(parse(&format!("  rules:{shown}")).unwrap(), default());
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        assert!(error("rules: []").contains("rules: is empty"));
        assert!(error("rules:\n- resources: [a]\n  verbs: [get]").contains("rules[0].apiGroups"));
        assert!(error("rules:\n- apiGroups: ['']\n  resources: [a]\n  verbs: []").contains("rules[0].verbs"));
        assert!(error("rules:\n- apiGroups: ['']\n  verbs: [get]").contains("rules[0].resources"));
        let unknown = error("rules:\n- apiGroups: ['']\n  ressources: [a]\n  verbs: [get]");
        assert!(
            unknown.contains("ressources") && unknown.contains("line 3"),
            "{unknown}"
        );
        let form = error("rules:\n- apiGroups: ''\n  resources: [a]\n  verbs: [get]");
        assert!(form.contains("line 2"), "{form}");
        let half = error("rules:\n- apiGroups: ['\n");
        assert!(half.contains("line "), "{half}");
    }

    #[test]
    fn a_whole_role_will_do() {
        let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules:\n\
                    - {apiGroups: [apps], resources: [deployments], resourceNames: [web], verbs: [get]}\n\
                    - {nonResourceURLs: [/metrics], verbs: [get]}\n";
        let rules = parse(role).unwrap();
        assert_eq!(
            rules[0].resource_names.as_deref(),
            Some(["web".to_owned()].as_slice())
        );
        assert_eq!(
            rules[1].non_resource_urls.as_deref(),
            Some(["/metrics".to_owned()].as_slice())
        );
    }
}
