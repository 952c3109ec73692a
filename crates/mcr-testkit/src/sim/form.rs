use std::sync::Arc;

use serde_json::{Value, json};

use super::error::SimError;
use super::kinds::Kind;
use super::list::Page;
use super::object::Object;
use super::table::{self, Include};

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Full,
    /// `PartialObjectMetadata`, or a list of such.
    Metadata {
        list: bool,
    },
    Table(Include),
}

impl Form {
    /// Chooses the first known media type of an `Accept` header.
    pub fn parse(header: &str, include: &str) -> Result<Self, SimError> {
        if header.trim().is_empty() {
            return Ok(Self::Full);
        }
        for media in header.split(',') {
            let mut parts = media.split(';').map(str::trim);
            if !matches!(
                parts.next().unwrap_or_default(),
                "application/json" | "application/*" | "*/*"
            ) {
                continue;
            }
            let parameter = |name: &str| {
                media
                    .split(';')
                    .filter_map(|part| part.trim().split_once('='))
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value)
            };
            let wanted = (parameter("as"), parameter("g"), parameter("v"));
            return Ok(match wanted {
                (None, ..) => Self::Full,
                (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Form::Table(include_of(include)?),
                (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1")) => {
                    Form::Metadata { list: false }
                }
                (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                    Form::Metadata { list: true }
                }
                _ => continue,
            });
        }
        Err(SimError::not_acceptable())
    }
}

fn include_of(text: &str) -> Result<Include, SimError> {
    match text {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        other => Err(SimError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

/// Writes one object, for an answer or a watch event.
pub fn write_object(
    kind: &Kind,
    object: &Object,
    form: Form,
    with_columns: bool,
    to: &mut Vec<u8>,
) -> Result<(), SimError> {
    match form {
        Form::Full => object.write_as(kind, to),
        Form::Metadata { list: false } => object.write_metadata(to),
        Form::Metadata { list: true } => return Err(SimError::internal("content is not a list")),
        Form::Table(include) => {
            let metadata = json!({ "resourceVersion": object.version.to_string() });
            let rows = vec![table::row(kind, object, include)];
            let table = table::table(kind, metadata, rows, with_columns);
            to.extend_from_slice(table.to_string().as_bytes());
        }
    }
    Ok(())
}

pub(crate) fn write_page(kind: &Kind, page: &Page, form: Form, to: &mut Vec<u8>) -> Result<(), SimError> {
    let mut metadata = json!({ "resourceVersion": page.version.to_string() });
    if let Some(token) = &page.token {
        metadata["continue"] = token.as_str().into();
    } else if kind.custom.is_some() && form == Form::Full {
        metadata["continue"] = "".into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let (list_kind, api_version) = match form {
        Form::Full => (kind.list_kind.to_string(), kind.api_version()),
        Form::Metadata { list: true } => (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        ),
        Form::Metadata { list: false } => {
            let list = match &kind.custom {
                Some(_) => "*unstructured.UnstructuredList".to_owned(),
                None => format!("*core.{}", kind.list_kind),
            };
            let message =
                format!("you requested PartialObjectMetadata, but the requested object is a list ({list})");
            return Err(SimError::new(406, "NotAcceptable", message));
        }
        Form::Table(include) => {
            let rows = page
                .objects
                .iter()
                .map(|object| table::row(kind, object, include));
            let table = table::table(kind, metadata, rows.collect(), true);
            to.extend_from_slice(table.to_string().as_bytes());
            return Ok(());
        }
    };
    if page.objects.is_empty() && form != Form::Full {
        // Real servers encode a nil slice of Go here, which becomes `null`.
        let list =
            json!({ "kind": list_kind, "apiVersion": api_version, "metadata": metadata, "items": null });
        to.extend_from_slice(list.to_string().as_bytes());
        return Ok(());
    }
    let size: usize = page.objects.iter().map(|object| object.body().len() + 96).sum();
    to.reserve(size + 256);
    let head = format!(
        "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
    );
    to.extend_from_slice(head.as_bytes());
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            to.push(b',');
        }
        write_item(kind, object, form, to);
    }
    to.extend_from_slice(b"]}");
    Ok(())
}

fn write_item(kind: &Kind, object: &Arc<Object>, form: Form, to: &mut Vec<u8>) {
    match form {
        Form::Metadata { .. } => object.write_metadata(to),
        // In a list, items of custom kinds have `apiVersion` and `kind`. Items of built-in kinds don't.
        _ if kind.custom.is_none() => to.extend_from_slice(object.body()),
        _ => object.write_as(kind, to),
    }
}

/// The object of a bookmark, which has only a version.
pub fn bookmark(kind: &Kind, form: Form, version: u64, initial_end: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if initial_end {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    match form {
        Form::Full => json!({ "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata }),
        Form::Metadata { .. } => {
            json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
        }
        Form::Table(_) => {
            let object = json!({ "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata });
            let version = json!({ "resourceVersion": version.to_string() });
            table::table(
                kind,
                version,
                vec![json!({ "cells": [], "object": object })],
                false,
            )
        }
    }
}
