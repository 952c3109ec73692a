//! The hand-written types against the schema of Cluster API's own CRD.

use std::cell::RefCell;

use mcr_provider_cluster_api::{v1beta1, v1beta2};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use crate::management::folder;
use crate::manifests;
use crate::on_capi;

/// The fields that a type asks a deserializer for: their path, and the type in words of a schema.
fn fields<T: for<'de> Deserialize<'de>>() -> Vec<(String, &'static str)> {
    let found = RefCell::default();
    let asked = Asked {
        path: String::new(),
        found: &found,
    };
    T::deserialize(asked).unwrap_or_else(|why| panic!("{why}"));
    found.into_inner()
}

/// Gives a type whatever it asks for, and notes it.
#[derive(Clone)]
struct Asked<'a> {
    path: String,
    found: &'a RefCell<Vec<(String, &'static str)>>,
}

impl Asked<'_> {
    fn note(&self, kind: &'static str) {
        self.found.borrow_mut().push((self.path.clone(), kind));
    }
}

macro_rules! scalars {
    ($($method:ident $visit:ident $value:expr, $kind:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note($kind);
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Error;

    scalars! {
        deserialize_bool visit_bool false, "boolean";
        deserialize_i8 visit_i8 1, "integer";
        deserialize_i16 visit_i16 1, "integer";
        deserialize_i32 visit_i32 1, "integer";
        deserialize_i64 visit_i64 1, "integer";
        deserialize_u8 visit_u8 1, "integer";
        deserialize_u16 visit_u16 1, "integer";
        deserialize_u32 visit_u32 1, "integer";
        deserialize_u64 visit_u64 1, "integer";
        deserialize_f32 visit_f32 1.0, "number";
        deserialize_f64 visit_f64 1.0, "number";
        // The only text that is read as something else is a time.
        deserialize_str visit_str "2026-01-01T00:00:00Z", "string";
        deserialize_string visit_str "2026-01-01T00:00:00Z", "string";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !self.path.is_empty() {
            self.note("object");
        }
        visitor.visit_map(Fields {
            of: self,
            names: names.iter(),
            next: "",
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("object");
        visitor.visit_map(Fields {
            of: self,
            names: [].iter(),
            next: "",
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("array");
        visitor.visit_seq(One(Some(Asked {
            path: format!("{}[]", self.path),
            ..self
        })))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note("anything");
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Fields<'a> {
    of: Asked<'a>,
    names: std::slice::Iter<'static, &'static str>,
    next: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else {
            return Ok(None);
        };
        self.next = name;
        let key: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let path = if self.of.path.is_empty() {
            self.next.to_owned()
        } else {
            format!("{}.{}", self.of.path, self.next)
        };
        seed.deserialize(Asked {
            path,
            found: self.of.found,
        })
    }
}

struct One<'a>(Option<Asked<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.0.take().map(|element| seed.deserialize(element)).transpose()
    }
}

/// The type that a schema gives to a path.
fn type_in(schema: &Value, path: &str) -> String {
    let mut at = schema;
    for name in path.split('.') {
        let arrays = name.matches("[]").count();
        at = &at["properties"][name.trim_end_matches("[]")];
        for _ in 0..arrays {
            at = &at["items"];
        }
    }
    at["type"].as_str().unwrap_or("nothing").to_owned()
}

#[test]
fn every_field_of_the_types_is_in_the_schema_of_the_real_crd_with_that_type() {
    on_capi(async |_| {
        let crds = manifests::read(&folder().unwrap(), "core.yaml");
        let clusters = crds
            .into_iter()
            .find(|crd| crd["spec"]["names"]["kind"] == "Cluster")
            .unwrap();
        let of = |version: &str| {
            let mut versions = clusters["spec"]["versions"].as_array().unwrap().iter();
            let version = versions.find(|served| served["name"] == version).unwrap();
            version["schema"]["openAPIV3Schema"]["properties"].clone()
        };
        let (new, old) = (of("v1beta2"), of("v1beta1"));
        let checked = [
            ("v1beta2 spec", &new["spec"], fields::<v1beta2::ClusterSpec>()),
            (
                "v1beta2 status",
                &new["status"],
                fields::<v1beta2::ClusterStatus>(),
            ),
            ("v1beta1 spec", &old["spec"], fields::<v1beta1::ClusterSpec>()),
            (
                "v1beta1 status",
                &old["status"],
                fields::<v1beta1::ClusterStatus>(),
            ),
        ];
        let mut wrong = Vec::new();
        for (part, schema, fields) in checked {
            assert!(fields.len() > 5, "{part}: {fields:?}");
            for (path, kind) in fields {
                let real = type_in(schema, &path);
                if real != kind {
                    wrong.push(format!("{part}: {path} is {kind} here and {real} in the CRD"));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    });
}

#[test]
fn a_field_that_is_not_in_a_schema_is_found() {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "it is only asked for")]
    struct Sample {
        some_name: Option<Vec<Inner>>,
    }
    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "it is only asked for")]
    struct Inner {
        count: i32,
    }
    let asked = fields::<Sample>();
    let expected = [
        ("someName", "array"),
        ("someName[]", "object"),
        ("someName[].count", "integer"),
    ];
    assert_eq!(asked, expected.map(|(path, kind)| (path.to_owned(), kind)));
    let schema = serde_json::json!({"properties": {"someName": {"type": "array", "items": {"type": "object", "properties": {}}}}});
    assert_eq!(type_in(&schema, "someName[]"), "object");
    assert_eq!(type_in(&schema, "someName[].count"), "nothing");
}
