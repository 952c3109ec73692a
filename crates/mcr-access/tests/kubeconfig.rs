//! Errors of unusable kubeconfigs: each names the field and what to do, and shows no secret.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_access::{
    AccessPolicy, AddressPolicy, AllowedPlugin, CredentialPluginPolicy, KubeconfigAccess, Trust,
};

const CANARY: &str = "canary-77aa";
const V1_CERTIFICATE: &str = include_str!("data/client-v1.crt");
const V1_KEY: &str = include_str!("data/client-v1.key");

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn message(yaml: &str, trust: Trust, policy: &AccessPolicy) -> String {
    let access = KubeconfigAccess::new(yaml, trust).base_dir("/nonexistent");
    let error = access
        .parse()
        .and_then(|access| policy.admit(&access)?.check_files())
        .map(|()| "fine".to_owned())
        .unwrap_or_else(|error| {
            assert!(!format!("{error:?}").contains(CANARY), "{error:?}");
            error.to_string()
        });
    assert!(!error.contains(CANARY), "{error}");
    error
}

fn cluster(fields: &str) -> String {
    message(&kubeconfig(fields, ""), Trust::Trusted, &AccessPolicy::default())
}

fn user(fields: &str) -> String {
    message(
        &kubeconfig("server: 'https://h:6443'", fields),
        Trust::Trusted,
        &AccessPolicy::default(),
    )
}

fn untrusted(cluster: &str, user: &str) -> String {
    let cluster = if cluster.contains("server") {
        cluster.to_owned()
    } else {
        format!("server: 'https://h:6443', {cluster}")
    };
    message(
        &kubeconfig(&cluster, user),
        Trust::Untrusted,
        &AccessPolicy::default(),
    )
}

fn signed() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["h".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn b64(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

#[test]
fn references() {
    let trusted = |yaml: &str| message(yaml, Trust::Trusted, &AccessPolicy::default());
    assert_eq!(
        trusted("clusters: []"),
        "current-context: is missing and no context was chosen (there are none); set one of the two"
    );
    assert_eq!(
        trusted("current-context: x\ncontexts: [{name: a}, {name: b}]"),
        "current-context: context \"x\" is not defined (there are \"a\", \"b\"); define it or correct the name"
    );
    let chosen = KubeconfigAccess::new("contexts: [{name: a}]", Trust::Trusted).context("z\n");
    assert_eq!(
        chosen.parse().unwrap_err().to_string(),
        "contexts[name=\"z\\n\"]: context \"z\\n\" is not defined (there are \"a\"); define it or correct the name"
    );
    assert_eq!(
        trusted(
            "current-context: a\ncontexts: [{name: a, context: {cluster: k, user: u}}]\nclusters: [{name: k}]"
        ),
        "contexts[name=\"a\"].context.user: user \"u\" is not defined (there are none); define it or correct the name"
    );
    assert_eq!(
        trusted("current-context: a\ncontexts: [{name: a, context: {cluster: k}}]\nclusters: [{name: k}]"),
        "clusters[name=\"k\"].cluster.server: is missing; write the address of the API server, https://host:port"
    );
    assert_eq!(
        trusted("current-context: a\ncontexts: [{name: a}, {name: a}]"),
        "contexts[name=\"a\"]: is defined more than once in this file; remove or rename all but one"
    );
    // Unknown fields, no user, and JSON are fine.
    assert_eq!(
        trusted(
            r#"{"future":1,"current-context":"a","contexts":[{"name":"a","context":{"cluster":"k","x":{}}}],"clusters":[{"name":"k","cluster":{"server":"https://h","y":[1]}}]}"#
        ),
        "fine"
    );
}

#[test]
fn default_namespaces() {
    let message_for = |namespace: &str| {
        let yaml = kubeconfig("server: 'https://h:6443'", "token: t")
            .replace("user: u}", &format!("user: u, namespace: {namespace}}}"));
        message(&yaml, Trust::Untrusted, &AccessPolicy::default())
    };
    for namespace in ["team-a", "''", "' '", "1", "~"] {
        assert_eq!(message_for(namespace), "fine", "{namespace}");
    }
    let too_long = "a".repeat(64);
    for namespace in ["../secrets", "a/b", "'a?x=y'", "Team", "a.b", "' a'", &too_long] {
        assert_eq!(
            message_for(namespace),
            "contexts[name=\"c\"].context.namespace: is not the name of a namespace, which has at most 63 lower-case letters, \
             digits and hyphens and begins and ends with a letter or digit; correct it",
            "{namespace}"
        );
    }
}

/// For each line `fields | problem`: so it is with these fields. Without a problem they are fine.
fn each(message: impl Fn(&str) -> String, place: &str, lines: &str) {
    for line in lines.trim().lines() {
        let reported = match line.trim().split_once(" | ") {
            Some((fields, problem)) => (message(fields), format!("{place}.{problem}")),
            None => (message(line.trim()), "fine".to_owned()),
        };
        assert_eq!(reported.0, reported.1, "{line}");
    }
}

#[test]
fn clusters() {
    let field = "clusters[name=\"k\"].cluster";
    each(
        |url| cluster(&format!("server: '{url}'")),
        field,
        "https://h
         http://h:80
         https://h:6443/clusters/a/
         https://[::1]:6443
         https://1.2.3.4
         https://3f4e5d6c7b8a
         h:6443 | server: has no scheme; write https://host:port
         ftp://h | server: must begin with https:// (or http://); correct the scheme
         https://me:canary-77aa@h | server: holds a user name or password; put it into the user's username and password
         https://h?token=canary-77aa | server: has a query or fragment; write https://host:port and at most a path
         https:// h | server: is not an address; write https://host:port
         https://h:99999 | server: has no host or a bad port; write https://host:port",
    );
    for number in [
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "0x",
        "127.1",
        "h.0177",
        "127.0.0.1.",
    ] {
        let text = cluster(&format!("server: 'https://{number}:6443'"));
        assert!(
            text.starts_with(&format!("{field}.server: has a number as its host; ")),
            "{text}"
        );
    }
    let more = |fields: &str| cluster(&format!("server: 'https://h', {fields}"));
    for (length, is_fine) in [(253, true), (254, false), (60_000, false)] {
        let (name, zone) = ("a".repeat(length), "a".repeat(length - "[fe80::1%25]".len()));
        let texts = [
            cluster(&format!("server: 'https://{name}:6443'")),
            cluster(&format!("server: 'https://[fe80::1%25{zone}]'")),
            more(&format!("proxy-url: 'socks5://{name}'")),
        ];
        for text in texts {
            assert_eq!((text == "fine", text.len() < 200), (is_fine, true), "{text}");
        }
    }
    let data = "certificate-authority-data";
    let (canary, ca) = (b64(CANARY), b64(signed().0));
    let cut = b64("-----BEGIN CERTIFICATE-----\ncanary-77aa\n");
    let nonsense = b64("-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n");
    each(
        more,
        field,
        &format!(
            "{data}: '{ca}'
             {data}: '*canary-77aa*' | {data}: is not valid base64; encode the PEM with base64 -w0 and copy all of it
             {data}: '-----BEGIN CERTIFICATE----- canary-77aa' | {data}: holds PEM as it is; encode it with base64 -w0 once more
             {data}: {canary} | {data}: holds no PEM certificate (-----BEGIN CERTIFICATE-----); copy the certificate again
             {data}: {cut} | {data}: holds PEM that is cut off or damaged; copy the certificate again
             {data}: {nonsense} | {data}: holds no certificate that can be parsed; copy the certificate authority again
             {data}: '{ca}', insecure-skip-tls-verify: true | insecure-skip-tls-verify: is set together with a certificate authority; \
                remove one of the two
             certificate-authority: ca.crt | certificate-authority: can't read /nonexistent/ca.crt: entity not found; check that the file \
                exists and that this process may read it
             tls-server-name: 'a b' | tls-server-name: is neither a DNS name nor an IP address; correct it
             proxy-url: 'ftp://me:canary-77aa@h' | proxy-url: must begin with http://, https:// or socks5:// and name a host; correct it
             proxy-url: 'http://h:3128'
             proxy-url: 'https://me:pw@h'
             proxy-url: 'socks5://h:1080'
             proxy-url: 'socks5h://h'"
        ),
    );
}

#[test]
fn users() {
    let (certificate, key) = signed();
    let (other, canary) = (b64(signed().0), b64(CANARY));
    let (certificate, key) = (b64(certificate), b64(key));
    let (v1, v1_key) = (b64(V1_CERTIFICATE), b64(V1_KEY));
    let encrypted =
        b64("-----BEGIN ENCRYPTED PRIVATE KEY-----\nY2FuYXJ5\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let data = "client-certificate-data";
    each(
        user,
        "users[name=\"u\"].user",
        &format!(
            "{data}: {certificate}, client-key-data: {key}
             {data}: {other}, client-key-data: {key} | client-key-data: does not belong to the client certificate; copy both again from the \
                same place
             {data}: {v1}, client-key-data: {v1_key} | {data}: holds an X.509 version 1 certificate, which rustls does not accept; issue it \
                again as version 3 (with openssl x509 -req, add -extfile with any extension)
             {data}: {certificate}, client-key-data: {canary} | client-key-data: holds no PEM private key; copy the key again
             {data}: {certificate}, client-key-data: {encrypted} | client-key-data: holds an encrypted private key; store it decrypted \
                (openssl pkey -in KEY -out PLAIN)
             {data}: {certificate} | {data}: is there without a client-key or client-key-data; add the key
             client-key-data: {key} | client-key-data: is there without a client-certificate or client-certificate-data; add the certificate
             client-certificate: a.crt, client-key: a.key | client-certificate: can't read /nonexistent/a.crt: entity not found; check that \
                the file exists and that this process may read it
             token: 'canary-77aa with spaces' | token: holds spaces or characters that don't fit into a header; copy the token again
             auth-provider: {{name: gcp, config: {{access-token: canary-77aa}}}} | auth-provider: \"gcp\" is a login helper that Kubernetes \
                removed in 1.26; use user.exec or a token
             as-groups: [admins] | as: is missing although as-uid, as-groups or as-user-extra is set; name the user to act as
             as: me, as-uid: '1', as-groups: [a], as-user-extra: {{k: [v]}}, token: t
             username: me, password: canary-77aa"
        ),
    );
}

#[test]
fn exec() {
    let api = "apiVersion: client.authentication.k8s.io/v1";
    each(
        |fields| user(&format!("exec: {{{fields}}}")),
        "users[name=\"u\"].user.exec",
        &format!(
            "command: aws, {api}, interactiveMode: Never
             command: aws, {api}beta1
             {api}, interactiveMode: Never | command: is missing; name the program to run
             command: aws | apiVersion: is missing; write client.authentication.k8s.io/v1
             command: aws, {api}alpha1 | apiVersion: is none of client.authentication.k8s.io/v1 and v1beta1; use a version of the plugin \
                that speaks one of these
             command: aws, {api} | interactiveMode: is missing, which v1 requires; write Never
             command: aws, {api}, interactiveMode: Always | interactiveMode: is Always, but there is no terminal here; use a plugin or login \
                that needs none, with Never
             command: aws, {api}, interactiveMode: canary-77aa | interactiveMode: is none of Never, IfAvailable and Always; write Never
             command: aws, {api}, interactiveMode: Never, env: [{{name: '', value: canary-77aa}}] | env: holds a variable without a usable \
                name or value; correct it"
        ),
    );
}

#[test]
fn untrusted_kubeconfigs_get_inline_data_only() {
    let field = "users[name=\"u\"].user";
    let file = "names a file, which untrusted kubeconfigs may not do";
    let folder = "or allow its folder with AccessPolicy::allow_files_under";
    let exec = "exec: {command: /bin/sh, args: [canary-77aa], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, env: [{name: LD_PRELOAD, value: x}]}";
    each(
        |user| untrusted("", user),
        field,
        &format!(
            "token: t
             tokenFile: /etc/shadow | tokenFile: {file}; put the token itself into the field token, {folder}
             client-certificate: /etc/a, client-key: /etc/b | client-certificate: {file}; use client-certificate-data, {folder}
             {exec} | exec: asks to run \"/bin/sh\", which untrusted kubeconfigs may not do; use a token or client certificate, or allow \
                the command with AccessPolicy::credential_plugins"
        ),
    );
    each(
        |cluster| untrusted(cluster, ""),
        "clusters[name=\"k\"].cluster",
        &format!(
            "certificate-authority: /etc/ca | certificate-authority: {file}; put the certificates into certificate-authority-data, {folder}
             insecure-skip-tls-verify: true | insecure-skip-tls-verify: is set, which untrusted kubeconfigs may not do; give \
                certificate-authority-data instead, or allow it with AccessPolicy::allow_insecure_tls
             proxy-url: 'http://me:canary-77aa@h:1' | proxy-url: names a proxy, which untrusted kubeconfigs may not do; remove it, or \
                allow the proxy with AccessPolicy::allow_proxy"
        ),
    );
    for (address, kind) in [
        ("127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local or metadata"),
        ("[::1]", "loopback"),
        ("0.0.0.0", "unspecified, multicast or broadcast"),
    ] {
        let plain = address.trim_matches(['[', ']']);
        assert_eq!(
            untrusted(&format!("server: 'https://{address}:6443'"), ""),
            format!(
                "clusters[name=\"k\"].cluster.server: the server is at {plain}, and untrusted access may not use {kind} addresses; allow it with AccessPolicy::addresses if it is meant"
            )
        );
    }
    // With a policy that allows them, the same fields are accepted.
    let policy = AccessPolicy::default()
        .credential_plugins(CredentialPluginPolicy::allowlist([AllowedPlugin::new("/bin/sh")
            .args(["get", "*"])
            .env(["AWS_PROFILE", "LD_PRELOAD"])]))
        .allow_files_under("/fleet")
        .allow_insecure_tls(true)
        .allow_proxy("http://h:1".parse().unwrap())
        .addresses(AddressPolicy::default().allow_loopback(true));
    let allowed = |cluster: &str, user: &str| message(&kubeconfig(cluster, user), Trust::Untrusted, &policy);
    assert_eq!(
        allowed(
            "server: 'https://127.0.0.1', insecure-skip-tls-verify: true, proxy-url: 'http://x:y@h:1'",
            "tokenFile: /fleet/t"
        ),
        "fine"
    );
    let exec = |more: &str| {
        let exec =
            "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, ";
        allowed("server: 'https://h'", &format!("{exec}{more}}}"))
    };
    let may_not = "\"/bin/sh\", which untrusted kubeconfigs may not do";
    assert_eq!(
        exec("args: [get, a], env: [{name: AWS_PROFILE, value: x}]"),
        "fine"
    );
    let other = format!("{field}.exec.args: passes other arguments to \"/bin/sh\"");
    for more in ["", "args: [canary-77aa]"] {
        assert!(exec(more).starts_with(&other), "{more}");
    }
    for name in ["LD_PRELOAD", "BASH_FUNC_x%%"] {
        let more = format!("args: [get, a], env: [{{name: '{name}', value: canary-77aa}}]");
        let why = format!(
            "{field}.exec.env: sets or leaves out {name:?} for {may_not}; correct it, or list it with AllowedPlugin::env"
        );
        assert_eq!(exec(&more), why);
    }
    let why = exec("args: [get, a], provideClusterInfo: true");
    assert!(
        why.starts_with(&format!("{field}.exec.provideClusterInfo: is set for {may_not}")),
        "{why}"
    );
    // The files of an untrusted kubeconfig are not read early, even if the policy allows them.
    assert_eq!(
        allowed(
            "server: 'https://h'",
            "client-certificate: /fleet/c, client-key: /fleet/k"
        ),
        "fine"
    );
}

#[test]
fn a_short_kubeconfig_can_not_stand_for_a_very_long_one() {
    let expands = |anchors: usize, text: &str| {
        let small: String = (0..anchors).map(|index| format!("&a{index} x, ")).collect();
        let copies = "*text, ".repeat(anchors * 9);
        let extensions = format!("extensions: [{{name: e, extension: [{small} &text {text}, {copies}]}}]");
        cluster(&format!("server: 'https://h:6443', {extensions}"))
    };
    assert_eq!(expands(5, "x"), "fine");
    let refused = "the kubeconfig can't be read: it is nested too deeply or expands to too much";
    let many = expands(1_500, "x");
    assert!(many.starts_with(refused), "{many}");
    let long = expands(100, &"x".repeat(500_000));
    assert!(long.starts_with(refused), "{long}");
}

#[test]
fn compression_is_turned_off_by_a_kubeconfig_but_never_on() {
    for (field, lists) in [
        ("", None),
        (", disable-compression: true", Some(false)),
        (", disable-compression: false", None),
    ] {
        let yaml = kubeconfig(&format!("server: 'https://h:6443'{field}"), "token: t");
        let access = KubeconfigAccess::new(yaml, Trust::Untrusted).parse().unwrap();
        assert_eq!(access.endpoint.gzip_lists, lists, "{field}");
    }
}
