//! Credentials in files that other programs renew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{path::Path, time::Duration};

use mcr_access::{Credential, EndpointAccess, KubeconfigAccess, Refresh, Trust};
use secrecy::ExposeSecret;

fn access(dir: &Path, user: &str) -> EndpointAccess {
    let yaml = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: n}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]"
    );
    let access = KubeconfigAccess::new(yaml, Trust::Trusted).base_dir(dir);
    let access = access.parse().unwrap();
    assert_eq!(&*access.default_namespace, "n");
    access
}

fn signed() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn token_files_are_read_again_and_a_missing_one_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "one\n").unwrap();
    let source = access(dir.path(), "tokenFile: token, token: inline, as: jane").credentials;
    assert_eq!(source.renew_every(), Some(Duration::from_secs(60)));
    let token = |credential: Credential| credential.token.unwrap().expose_secret().to_owned();
    let first = source.credential(Refresh::First).await.unwrap();
    assert_eq!(first.impersonate.as_ref().unwrap().user, "jane");
    assert_eq!(token(first), "one");
    std::fs::write(&file, "two").unwrap();
    assert_eq!(token(source.credential(Refresh::Expiring).await.unwrap()), "two");
    std::fs::write(&file, " \n").unwrap();
    assert_eq!(token(source.credential(Refresh::Expiring).await.unwrap()), "two");
    let error = source.credential(Refresh::Unauthorized).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the token file {} is empty or not text; check what writes it",
            file.display()
        )
    );
    std::fs::remove_file(&file).unwrap();
    let error = source.credential(Refresh::Unauthorized).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "can't read {}: entity not found; check that the file exists and may be read",
            file.display()
        )
    );
}

#[tokio::test]
async fn certificate_files_are_taken_only_when_they_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = signed();
    std::fs::write(dir.path().join("crt"), &certificate).unwrap();
    std::fs::write(dir.path().join("key"), &key).unwrap();
    let access = access(dir.path(), "client-certificate: crt, client-key: key");
    let source = &access.credentials;
    access.check_files().unwrap();
    let print = |credential: Credential| credential.certificate.unwrap().fingerprint();
    let first = print(Credential::certificate(&certificate, key));
    assert_eq!(print(source.credential(Refresh::First).await.unwrap()), first);
    let (newer, key) = signed();
    std::fs::write(dir.path().join("crt"), &newer).unwrap();
    assert_eq!(print(source.credential(Refresh::Expiring).await.unwrap()), first);
    let error = access.check_files().unwrap_err().to_string();
    let expected = format!(
        "users[name=\"u\"].user.client-key: names {:?}, which does not belong to the client certificate; copy both again from the same place",
        dir.path().join("key")
    );
    assert_eq!(error, expected);
    std::fs::write(dir.path().join("key"), &key).unwrap();
    assert_eq!(
        print(source.credential(Refresh::Expiring).await.unwrap()),
        print(Credential::certificate(newer, key))
    );
}
