//! The output of a dry run.

use serde_json::{Value, json};

use super::{args::Format, document, objects, plan::Plan};

/// A placeholder for the token: a dry run requests none.
pub(super) const PLACEHOLDER: &str =
    "<a dry run asks for no token; here is the one that the API server gives>";

pub(super) fn dry_run(plan: &Plan, format: Format) -> anyhow::Result<String> {
    let mut member = Vec::new();
    if !plan.is_rotation() {
        member.push(objects::account(plan));
        member.extend(objects::rbac(plan));
    }
    let kubeconfig = document::kubeconfig(plan, PLACEHOLDER, false)?;
    let hub = vec![objects::readable_secret(plan, &kubeconfig)];
    match format {
        Format::Json => {
            let all = json!({
                "cluster": {"context": plan.member, "objects": member},
                "hub": {"context": plan.hub, "objects": hub},
            });
            crate::output::json(&all)
        }
        Format::Yaml => {
            let mut text = String::new();
            for (place, context, objects) in [("cluster", &plan.member, member), ("hub", &plan.hub, hub)] {
                for object in objects {
                    text.push_str(&document(place, context, &object)?);
                }
            }
            Ok(text)
        }
    }
}

fn document(place: &str, context: &str, object: &Value) -> anyhow::Result<String> {
    let context = crate::output::printable(context);
    Ok(format!(
        "---\n# to the {place}, context {context}\n{}",
        serde_saphyr::to_string(object)?
    ))
}
