//! The rules that no input may break: what the fuzz targets call, and the test that replays their corpus
//! (`crates/mcr-core/tests/fuzz_corpus.rs`).
//!
//! Each function takes bytes from outside, puts them through everything that reads them, and panics if a rule is broken: no
//! bytes panic, no message quotes a possible secret, an object that was taken apart says the same as before, and a response
//! does not depend on the pieces in which it arrives.
#![allow(dead_code, reason = "each target calls one of them")]

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use mcr_access::{
    AccessError, AccessPolicy, AddressPolicy, ApiVersion, CredentialPluginPolicy, EndpointAccess,
    KubeconfigAccess, KubeconfigFile, Trust, contexts,
    internal::{Document, exec_output as read_exec_output},
};
use mcr_h1::Head;
use mcr_store::{
    Encoder, Encoding, EventError, Item, LineDecoder, ListDecoder, ListError, ListPage, Object,
    TemplateRegistry, WatchEvent,
    internal::{parse_event_by_part, parse_list_by_item},
    parse_event, parse_list, parse_status,
};
use mcr_watch::WatchError;
use secrecy::ExposeSecret;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// Reads the response to a GET in one piece and in small ones: both find the same head, content and end.
pub(crate) fn response(bytes: &[u8]) {
    let whole = read_response(bytes, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(read_response(bytes, piece), whole, "in pieces of {piece} bytes");
    }
}

/// The head, the content, and how many bytes the response has if it is complete. `None` if it is malformed.
fn read_response(bytes: &[u8], piece: usize) -> Option<(String, Vec<u8>, Option<usize>)> {
    let mut start = 0;
    let mut arrived = 0_usize;
    loop {
        arrived = bytes.len().min(arrived.saturating_add(piece));
        match Head::parse(&bytes[start..arrived]).ok()? {
            Head::Interim { len } => {
                start += len;
                arrived = start;
            }
            Head::Final {
                len,
                response,
                mut framing,
                keep_alive,
            } => {
                let head = format!("{response:?} {keep_alive}");
                let mut content = Vec::new();
                let mut read = start + len;
                while !framing.is_done() && read < bytes.len() {
                    let piece = &bytes[read..bytes.len().min(read.saturating_add(piece))];
                    read += framing.read(piece, &mut content).ok()?;
                }
                return Some((head, content, framing.is_done().then_some(read)));
            }
            Head::Partial if arrived == bytes.len() => return Some(Default::default()),
            _ => {}
        }
    }
}

/// A text shorter than this can be in a message by chance.
const SHORTEST: usize = 12;

/// Takes a kubeconfig apart and resolves each of its contexts, as trusted and untrusted input. Reads no file.
pub(crate) fn kubeconfig(bytes: &[u8]) {
    let announced = kubeconfig_reports(bytes);
    let Ok(document) = Document::parse(bytes) else {
        nothing_quoted(bytes, &announced, || kubeconfig_reports(&turned(bytes)));
        return;
    };
    let json = document.to_bytes();
    let Ok(mut value) = serde_json::from_slice::<Value>(&json) else {
        panic!("a kubeconfig can't be written as JSON");
    };
    const NAMES: &[&str] = &[
        "apiVersion",
        "as",
        "certificate-authority",
        "client-certificate",
        "client-key",
        "cluster",
        "command",
        "context",
        "current-context",
        "interactiveMode",
        "name",
        "namespace",
        "tls-server-name",
        "tokenFile",
        "user",
    ];
    let mut secrets = Vec::new();
    turn(&mut value, "", NAMES, &mut secrets);
    not_quoted(&secrets, &announced, || {
        kubeconfig_reports(value.to_string().as_bytes())
    });
}

fn kubeconfig_reports(bytes: &[u8]) -> Vec<String> {
    let lenient = AccessPolicy::default()
        .credential_plugins(CredentialPluginPolicy::AllowAll)
        .allow_files_under("/fuzz")
        .allow_insecure_tls(true)
        .addresses(AddressPolicy::default().allow_loopback(true));
    let strict = AccessPolicy::default();
    let mut announced = Vec::new();
    let mut read = |access: &KubeconfigAccess, policy: &AccessPolicy| {
        announced.push(format!("{access:?}"));
        let resolved = access.parse().and_then(|parsed| policy.admit(&parsed));
        if let Err(error) = &resolved {
            announced.push(error.to_string());
            announced.push(format!("{error:?}"));
        }
        if let Ok(resolved) = &resolved {
            announced.push(format!("{:?}", resolved.endpoint));
        }
        resolved
    };
    for trust in [Trust::Trusted, Trust::Untrusted] {
        let access = KubeconfigAccess::new(bytes, trust).base_dir("/fuzz");
        for policy in [&strict, &lenient] {
            let _ = read(&access, policy);
        }
    }
    let found = contexts(&[KubeconfigFile::new("/fuzz/kubeconfig", bytes)]);
    for one in found.iter().take(16) {
        let (Some(context), Ok(alone)) = (&one.context, &one.access) else {
            continue;
        };
        let whole = KubeconfigAccess::new(bytes, Trust::Trusted)
            .context(context.clone())
            .base_dir("/fuzz");
        let whole = outcome(read(&whole, &strict));
        let alone = outcome(read(alone, &strict));
        assert!(
            whole == alone,
            "a context taken out of its file says something else"
        );
    }
    announced.extend(found.iter().map(|one| format!("{one:?}")));
    announced.extend(
        found
            .iter()
            .filter_map(|one| Some(one.access.as_ref().err()?.to_string())),
    );
    announced
}

/// What was parsed and admitted, to compare.
fn outcome(admitted: Result<EndpointAccess, AccessError>) -> Result<impl PartialEq, String> {
    admitted
        .map(|access| access.fingerprint())
        .map_err(|error| error.to_string())
}

/// Reads a list at once and in parts, and each of its items as an object and as two Rust types.
pub(crate) fn list(bytes: &[u8]) {
    assert!(parse_status(500, bytes).message.len() <= 500);
    json_not_quoted(bytes, |bytes| {
        let announced = list_reports(parse_list(bytes));
        if let Ok(text) = std::str::from_utf8(bytes) {
            assert!(
                announced == list_reports(parse_list_by_item(text)),
                "a list says something else when it is read item by item"
            );
        }
        announced
    });
    list_reads_the_same_in_parts(bytes);
}

/// A list does not depend on the parts in which it arrives.
fn list_reads_the_same_in_parts(bytes: &[u8]) {
    let read = |item: Item<'_>| item.map(|object| object.json()).map_err(|e| e.to_string());
    let whole = parse_list(bytes).map(|page| {
        let items: Vec<_> = page.items.iter().map(read).collect();
        (items, page.resource_version, page.continue_token)
    });
    let is_text = std::str::from_utf8(bytes).is_ok();
    for size in [1, 7, 64, bytes.len().max(1)] {
        let in_parts = || {
            let mut list = ListDecoder::default();
            let mut items = Vec::new();
            for part in bytes.chunks(size) {
                list.buffer().extend_from_slice(part);
                items.extend(list.read()?.iter().map(read));
            }
            let end = list.finish()?;
            Ok((items, end.resource_version, end.continue_token))
        };
        let in_parts = in_parts();
        // Of two errors, the one that comes first in the parts is not the one that comes first in the whole.
        let both_fail = !is_text && whole.is_err() && in_parts.is_err();
        assert!(
            both_fail || in_parts == whole,
            "a list depends on how a body comes in pieces of {size}"
        );
    }
}

fn list_reports(page: Result<ListPage<'_>, ListError>) -> Vec<String> {
    match page {
        Ok(page) => {
            assert!(!page.resource_version.is_empty());
            assert!(page.continue_token.as_deref() != Some(""));
            patterns_show_nothing(&page);
            page.items.iter().flat_map(object_reports).collect()
        }
        Err(error) => vec![error.to_string(), format!("{error:?}")],
    }
}

/// Splits a watch body that comes in several ways, and reads its lines.
pub(crate) fn watch(bytes: &[u8]) {
    let whole = lines(bytes, bytes.len().max(1));
    for size in [1, 2, 7, 64] {
        assert!(
            lines(bytes, size) == whole,
            "lines depend on how a body comes in pieces of {size}"
        );
    }
    let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    expected.retain(|line| !line.iter().all(u8::is_ascii_whitespace));
    assert!(expected == whole, "lines are lost or made up");
    for line in whole {
        json_not_quoted(&line, |line| {
            let announced = line_reports(parse_event(line));
            if let Ok(text) = std::str::from_utf8(line) {
                assert!(
                    announced == line_reports(parse_event_by_part(text)),
                    "an event says something else when it is read part by part"
                );
            }
            announced
        });
    }
}

fn lines(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut lines = LineDecoder::default();
    let mut found = Vec::new();
    for chunk in bytes.chunks(size) {
        lines.push(Bytes::copy_from_slice(chunk));
        while let Some(line) = lines.next() {
            match line {
                Ok(line) => found.push(line.to_vec()),
                Err(_) => panic!("a line of {} bytes is too long", bytes.len()),
            }
        }
    }
    found.extend(lines.rest().map(|line| line.to_vec()));
    found
}

fn line_reports(line: Result<WatchEvent<'_>, EventError>) -> Vec<String> {
    match line {
        Ok(WatchEvent::Put(event) | WatchEvent::Deleted(event)) => {
            assert!(event.resource_version().as_deref() != Some(""));
            object_reports(event.item())
        }
        // An empty one is passed over by the driver.
        Ok(WatchEvent::Bookmark { .. }) => Vec::new(),
        Ok(WatchEvent::Error(status)) => {
            let error = WatchError::from_status(status, None);
            assert!(WatchError::REASONS.contains(&error.reason()));
            vec![error.to_string(), format!("{error:?}")]
        }
        Err(error) => vec![
            error.to_string(),
            format!("{error:?}"),
            WatchError::from(error).to_string(),
        ],
    }
}

/// All that can be read of a ConfigMap, which is as long as it says.
fn all_of(object: Object) -> (Vec<u8>, Option<Value>) {
    const TYPE: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","#;
    let json = object.to_json();
    assert_eq!(
        json.len(),
        TYPE.len() + object.bytes(),
        "an object is of another length"
    );
    (json, object.decode().ok())
}

/// Objects of a list read the same whether they are held in the templates that they have in common or not.
fn patterns_show_nothing(page: &ListPage<'_>) {
    let form = Encoding::new("v1", "ConfigMap");
    let mut shaping = Encoder::with_templates(Arc::new(TemplateRegistry::new(form.clone())));
    let mut plain = Encoder::plain(form);
    // The second time all templates are known.
    for item in page.items.iter().chain(page.items.iter()).flatten() {
        let all = |encoder: &mut Encoder| item.encode(None, encoder).ok().map(all_of);
        assert!(
            all(&mut shaping) == all(&mut plain),
            "an object of a list reads otherwise in a shape"
        );
    }
}

/// An object reads the same whether it is held in a shape or not.
fn shapes_show_nothing(json: &[u8], form: &Encoding) {
    let Ok(Value::Object(mut value)) = serde_json::from_slice(json) else {
        return;
    };
    let mut encoder = Encoder::with_templates(Arc::new(TemplateRegistry::new(form.clone())));
    let whole = |digit: u8| format!("6e0c7b4e-0b7c-4b58-9d3e-00000000000{digit}");
    for uid in [whole(1), whole(2), whole(1), "a".to_owned(), "b".to_owned()] {
        value["metadata"]["uid"] = uid.into();
        let Ok(raw) = to_raw_value(&value) else { return };
        let shaped = Object::parse(&raw, &mut encoder);
        let plain = Object::parse(&raw, &mut Encoder::plain(form.clone()));
        assert!(
            shaped.ok().map(all_of) == plain.ok().map(all_of),
            "an object reads otherwise in a shape"
        );
    }
}

fn object_reports(item: Item<'_>) -> Vec<String> {
    let form = Encoding::new("v1", "ConfigMap");
    let mut encoder = Encoder::plain(form.clone());
    let object = match item.and_then(|object| object.encode(None, &mut encoder)) {
        Ok(object) => object,
        Err(error) => return vec![error.to_string(), format!("{error:?}")],
    };
    let held = object.to_json();
    let again = std::str::from_utf8(&held).ok().and_then(|text| {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        Object::parse(raw, &mut encoder).ok()
    });
    let Some(again) = again else {
        panic!("what is held of an object is not an object any more");
    };
    assert!(again.to_json() == held && again.key() == object.key() && again.same_uid(&object));
    assert!(again.resource_version() == object.resource_version());
    assert!(again.generation() == object.generation());
    shapes_show_nothing(&held, &form);

    assert!(
        object.decode::<ConfigMap>().ok() == serde_json::from_slice(&held).ok()
            && object.decode::<DynamicObject>().ok() == serde_json::from_slice(&held).ok(),
        "an object is decoded in another way than serde_json does it"
    );

    let mut announced = vec![format!("{object:?}")];
    let metadata = [
        object.decode::<ConfigMap>().map(|map| map.metadata),
        object.decode::<DynamicObject>().map(|object| object.metadata),
    ];
    for metadata in metadata {
        match metadata {
            Ok(metadata) => {
                let namespace = metadata.namespace.filter(|namespace| !namespace.is_empty());
                assert!(
                    metadata.name.as_deref() == Some(&*object.key().name)
                        && namespace.as_deref() == object.key().namespace.as_deref()
                        && metadata.resource_version.unwrap_or_default() == object.resource_version()
                        && metadata.generation == object.generation(),
                    "an object says something else of itself than its store"
                );
                assert!(metadata.managed_fields.is_none(), "managedFields are held");
            }
            Err(error) => announced.extend([error.to_string(), format!("{error:?}")]),
        }
    }
    announced
}

/// Reads what an exec credential plugin printed, as both versions of the protocol.
pub(crate) fn exec_output(bytes: &[u8]) {
    json_not_quoted(bytes, exec_reports);
}

fn exec_reports(bytes: &[u8]) -> Vec<String> {
    let mut announced = Vec::new();
    for version in [ApiVersion::V1, ApiVersion::V1Beta1] {
        match read_exec_output(bytes, version) {
            Ok(credential) => {
                assert!(credential.token.is_some() || credential.certificate.is_some());
                let token = credential.token.as_ref().map(ExposeSecret::expose_secret);
                assert!(
                    token.is_none_or(|token| http::HeaderValue::from_str(token).is_ok()),
                    "a token that fits into no header"
                );
                announced.push(format!("{credential:?} {:?}", credential.certificate));
            }
            Err(error) => announced.push(error),
        }
    }
    announced
}

/// Checks that nothing is said of some JSON that is in one of its strings, but for names.
fn json_not_quoted(bytes: &[u8], text: impl Fn(&[u8]) -> Vec<String>) {
    const NAMES: &[&str] = &[
        "apiVersion",
        "kind",
        "message",
        "name",
        "namespace",
        "resourceVersion",
    ];
    let announced = text(bytes);
    match serde_json::from_slice::<Value>(bytes) {
        Ok(mut value) => {
            let mut secrets = Vec::new();
            turn(&mut value, "", NAMES, &mut secrets);
            not_quoted(&secrets, &announced, || text(value.to_string().as_bytes()));
        }
        Err(_) => nothing_quoted(bytes, &announced, || text(&turned(bytes))),
    }
}

/// The same for what can't be parsed: secrets are what follows the word token.
fn nothing_quoted(bytes: &[u8], announced: &[String], of_turned: impl FnOnce() -> Vec<String>) {
    let mut secrets = Vec::new();
    for (at, _) in bytes
        .windows(5)
        .enumerate()
        .filter(|(_, window)| *window == b"token")
    {
        let rest = &bytes[at + 5..];
        let skip = rest.iter().take_while(|byte| b"\": '".contains(byte)).count();
        let secret = rest[skip..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .map(|byte| char::from(*byte))
            .collect::<String>();
        if secret.len() >= SHORTEST {
            secrets.push(secret);
        }
    }
    not_quoted(&secrets, announced, of_turned);
}

/// Checks that no secret is in what was said. A message that happens to hold the same words says them of another
/// secret, too: that is what the texts `of_turned` input are for.
fn not_quoted(secrets: &[String], announced: &[String], of_turned: impl FnOnce() -> Vec<String>) {
    let mut suspects = Vec::new();
    for secret in secrets {
        let secret = secret.as_bytes();
        for start in [0, (secret.len() - SHORTEST) / 2, secret.len() - SHORTEST] {
            let part = &secret[start..start + SHORTEST];
            if !may_be_chance(part) && announced.iter().any(|text| holds(text, part)) {
                suspects.push(part);
            }
        }
    }
    if suspects.is_empty() {
        return;
    }
    let turned = of_turned();
    for part in suspects {
        assert!(
            turned.iter().any(|text| holds(text, part)),
            "{:?} is quoted in {announced:?}",
            String::from_utf8_lossy(part)
        );
    }
}

/// Words of messages get into inputs, too, as a fuzzer sees what its input is compared with. None of them has letters
/// and digits in one.
fn may_be_chance(part: &[u8]) -> bool {
    !(part.iter().all(u8::is_ascii_alphanumeric)
        && part.iter().any(u8::is_ascii_digit)
        && part.iter().any(u8::is_ascii_alphabetic))
}

fn holds(text: &str, part: &[u8]) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window == part)
}

/// Turns every string that may be a secret into another one of the same form, and collects what they were.
fn turn(value: &mut Value, field: &str, names: &[&str], secrets: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            // Of an address only the user name and password in it are secret.
            let secret = if matches!(field, "server" | "proxy-url") {
                let start = text.find("://").map_or(0, |at| at + 3);
                start..text.rfind('@').unwrap_or(start).max(start)
            } else if names.contains(&field) {
                0..0
            } else {
                0..text.len()
            };
            if secret.len() >= SHORTEST {
                secrets.push(text[secret.clone()].to_owned());
                let other: String = text[secret.clone()].chars().map(next).collect();
                text.replace_range(secret, &other);
            }
        }
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| turn(value, field, names, secrets)),
        Value::Object(fields) => fields
            .iter_mut()
            .for_each(|(field, value)| turn(value, field, names, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn turned(bytes: &[u8]) -> Vec<u8> {
    let turn = |byte: &u8| u8::try_from(next(char::from(*byte))).unwrap_or(*byte);
    bytes.iter().map(turn).collect()
}

fn next(character: char) -> char {
    match character {
        'z' => 'a',
        'Z' => 'A',
        '9' => '0',
        'a'..='y' | 'A'..='Y' | '0'..='8' => char::from(character as u8 + 1),
        other => other,
    }
}
