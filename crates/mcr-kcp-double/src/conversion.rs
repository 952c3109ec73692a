//! The versions v1alpha1 and v1alpha2 of APIExport and APIBinding. The annotations with which kcp keeps what
//! v1alpha1 cannot say are not made: a write through v1alpha1 loses it.

use serde_json::{Map, Value, json};

fn each_claim(object: &mut Value, change: impl Fn(&mut Map<String, Value>)) {
    let claims = object["spec"]
        .get_mut("permissionClaims")
        .and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        if let Some(claim) = claim.as_object_mut() {
            change(claim);
        }
    }
}

fn spec(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec").and_then(Value::as_object_mut)
}

pub(super) fn export_to_stored(object: &mut Value) {
    let Some(spec) = spec(object) else { return };
    // A v1alpha1 object has no such field: kcp prunes it without a word.
    spec.remove("resources");
    let schemas = spec.remove("latestResourceSchemas");
    let schemas = schemas.as_ref().and_then(Value::as_array).into_iter().flatten();
    let resources: Vec<Value> = schemas
        .filter_map(Value::as_str)
        .filter_map(|schema| {
            let mut words = schema.splitn(3, '.');
            let (_, plural, group) = (words.next()?, words.next()?, words.next()?);
            let group = if group == "core" { "" } else { group };
            Some(json!({ "name": plural, "group": group, "schema": schema, "storage": { "crd": {} } }))
        })
        .collect();
    if !resources.is_empty() {
        spec.insert("resources".to_owned(), resources.into());
    }
    each_claim(object, |claim| {
        claim.remove("all");
        claim.remove("resourceSelector");
        claim.entry("verbs").or_insert_with(|| json!(["*"]));
    });
}

pub(super) fn export_from_stored(object: &mut Value) {
    let Some(spec) = spec(object) else { return };
    let resources = spec.remove("resources");
    let resources = resources.as_ref().and_then(Value::as_array).into_iter().flatten();
    let schemas: Vec<Value> = resources.map(|resource| resource["schema"].clone()).collect();
    if !schemas.is_empty() {
        spec.insert("latestResourceSchemas".to_owned(), schemas.into());
    }
    each_claim(object, |claim| {
        claim.remove("verbs");
        claim.remove("defaultSelector");
        claim.insert("all".to_owned(), true.into());
    });
}

pub(super) fn binding_to_stored(object: &mut Value) {
    each_claim(object, |claim| {
        claim.remove("all");
        claim.remove("resourceSelector");
        claim.entry("verbs").or_insert_with(|| json!(["*"]));
        claim
            .entry("selector")
            .or_insert_with(|| json!({ "matchAll": true }));
    });
}

pub(super) fn binding_from_stored(object: &mut Value) {
    each_claim(object, |claim| {
        claim.remove("verbs");
        claim.remove("selector");
        claim.insert("all".to_owned(), true.into());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_of_v1alpha1_names_its_schemas_and_loses_resources() {
        let mut export = json!({ "spec": {
            "latestResourceSchemas": ["v1.widgets.example.io", "v1.things.core"], "resources": [{ "name": "lost" }],
            "permissionClaims": [{ "resource": "configmaps", "all": true }],
        } });
        let before = export.clone();
        export_to_stored(&mut export);
        assert_eq!(export["spec"]["resources"][0]["group"], "example.io");
        assert_eq!(export["spec"]["resources"][1]["group"], "");
        assert_eq!(
            export["spec"]["permissionClaims"][0],
            json!({ "resource": "configmaps", "verbs": ["*"] })
        );
        export_from_stored(&mut export);
        let schemas = "latestResourceSchemas";
        assert_eq!(export["spec"][schemas], before["spec"][schemas]);
        assert_eq!(
            export["spec"]["permissionClaims"],
            before["spec"]["permissionClaims"]
        );
        assert!(export["spec"]["resources"].is_null());
    }
}
